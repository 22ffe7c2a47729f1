package health

import (
	"fmt"
	"time"
)

const nextArchive = "vigilctl archive status shows the reason: check the bucket, its rights and the network"

// checkArchive checks the continuous archive if a member has one.
func (e *Examination) checkArchive(r *report) {
	with := 0
	for i := range e.Readings {
		if _, ok := e.Readings[i].Metrics.Value(ArchiveLag); ok {
			with++
		}
	}
	e.measured(r, func(x *Reading, name string) {
		seconds := func(metric string) time.Duration {
			return time.Duration(x.Value(metric) * float64(time.Second)).Truncate(time.Second)
		}
		lag, ok := x.Metrics.Value(ArchiveLag)
		switch {
		case with == 0:
		case !ok:
			r.addFinding(Warning, name,
				"it has no archive, and other members have one: it cannot take their place",
				"start it with the --archive of the others", "")
		case x.Value(ArchiveRefused) > 0:
			r.addFinding(Critical, name,
				"it does not write to its archive: the bucket is not one of this cluster, or has another encryption", "vigilctl archive status shows the reason; name another bucket or prefix in --archive", "docs/operations/observe.md#vigilarchiverefused")
		case e.Leader() == x.ID() && lag >= e.Limits.ArchiveLag.Seconds():
			r.addFinding(Critical, name,
				fmt.Sprintf("writes of the last %v are not archived", seconds(ArchiveLag)),
				nextArchive, "")
		case seconds(ArchiveFailing) >= e.Limits.ArchiveLag:
			r.addFinding(Warning, name,
				fmt.Sprintf("it has not reached the archive for %v", seconds(ArchiveFailing)),
				nextArchive, "docs/operations/observe.md#vigilarchivefails")
		}
		if n := x.Value(ArchiveGaps); n > 0 {
			r.addFinding(Warning, name,
				fmt.Sprintf("it has found %.0f gaps in the archive since it started: states within them cannot be restored", n), "raise --archive-max-lag-bytes if the disks have room", "docs/operations/observe.md#vigilarchivegap")
		}
	})
}
