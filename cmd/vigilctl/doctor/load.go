package doctor

import (
	"fmt"
	"time"

	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/survey"
)

func (e *examination) checkQuota(report reportFunc) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if x.Status == nil {
			continue
		}
		quota, file, inUse := x.Quota(), x.Status.DbSize, x.Status.DbSizeInUse
		if used := float64(x.QuotaUsed()) / float64(max(quota, 1)); quota > 0 && used >= quotaHigh {
			s := warning
			if used >= quotaCritical {
				s = critical
			}
			report(s, e.NameOf(x), fmt.Sprintf("%.0f%% of the quota of %s are used; at 100%% puts are rejected", 100*used, screen.Bytes(quota)), "find the largest keys: vigilctl tree --sizes; delete, compact, or raise --quota-backend-bytes")
		}
		if !x.IsVigil() && file-inUse > freeHigh && file > 2*inUse {
			report(note, e.NameOf(x), fmt.Sprintf("%s of the %s of its database are free", screen.Bytes(file-inUse), screen.Bytes(file)), "vigilctl defrag --endpoints "+x.Endpoint+" at a time of low load: the member does not serve meanwhile")
		}
	}
}

func (e *examination) checkLag(report reportFunc) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if n, ok := e.Lag(x); ok && n > lagHigh {
			report(warning, e.NameOf(x), fmt.Sprintf("lags the leader by %d entries", n), "check its disk, its processor and the network to the leader; vigilctl top shows whether it catches up")
		}
		if x.Status.GetIsLearner() {
			report(note, e.NameOf(x), "is a learner: it does not vote", fmt.Sprintf("when it has caught up: vigilctl member promote %x", x.ID()))
		}
	}
}

func (e *examination) checkDisks(report reportFunc) {
	for i := range e.Readings {
		x := &e.Readings[i]
		for _, c := range []struct {
			metric, what string
			slow, very   time.Duration
			next         string
		}{
			{survey.WALFsync, "writing the raft log to the disk", fsyncSlow, fsyncVerySlow, "give the raft log a disk of its own (--wal-dir), an SSD; look for other writers: iostat -x 1"},
			{survey.StoreCommit, "committing to the store", commitSlow, 0, "look for other writers to the disk: iostat -x 1"},
			{survey.Apply, "applying a write", applySlow, 0, "look for large transactions and ranges: --warning-apply-duration names them in the log"},
		} {
			h := x.Metrics.Histogram(c.metric)
			p99, ok := h.Quantile(0.99)
			if !ok || h.Count < minObservations || p99 <= c.slow.Seconds() {
				continue
			}
			s := warning
			if c.very > 0 && p99 > c.very.Seconds() {
				s = critical
			}
			report(s, e.NameOf(x), fmt.Sprintf("%s takes %s or more in one of 100 cases since it started; below %v is good", c.what, screen.Seconds(p99), c.slow), c.next)
		}
		if slow, all := x.Value(survey.SlowApplies), x.Value(survey.AppliedProposals); slow > 10 && slow > all/100 {
			report(warning, e.NameOf(x), fmt.Sprintf("%.0f of %.0f writes were slow to apply", slow, all), "its log lists them: took too long")
		}
	}
}

func (e *examination) checkNetwork(report reportFunc) {
	for i := range e.Readings {
		x := &e.Readings[i]
		h := x.Metrics.Histogram(survey.PeerRoundTrip)
		if p99, ok := h.Quantile(0.99); ok && h.Count >= minObservations && p99 > peerSlow.Seconds() {
			report(warning, e.NameOf(x), fmt.Sprintf("other members take %s or more to answer it in one of 100 cases", screen.Seconds(p99)), "check the network between the members; if it cannot be faster, raise --heartbeat-interval and --election-timeout on all")
		}
		up := e.now.Sub(time.Unix(int64(x.Value(survey.StartTime)), 0)).Hours()
		if n := x.Value(survey.LeaderChanges); x.Metrics != nil && up > 0 && n > 5 && n/max(up, 1) > leadersAnHour {
			report(warning, e.NameOf(x), fmt.Sprintf("has seen %.0f changes of the leader in %s", n, screen.Age(time.Duration(up*float64(time.Hour)))), "check disks, processors and network: a leader without a heartbeat for --election-timeout is replaced")
		}
		if n := x.Value(survey.PendingProposals); n > pendingHigh {
			report(warning, e.NameOf(x), fmt.Sprintf("%.0f writes wait for agreement", n), "the load exceeds the capacity: check disks and network, or reduce the writes of clients")
		}
	}
}

func (e *examination) checkWatchers(report reportFunc) {
	for i := range e.Readings {
		x := &e.Readings[i]
		if lag := x.Value(survey.LargestWatcherLag); lag > watchLagHigh {
			report(warning, e.NameOf(x), fmt.Sprintf("a watcher is %.0f revisions behind", lag), "find it: vigilctl watchers --sort lag --endpoints "+x.Endpoint)
		}
		if slow, waiting := x.Value(survey.SlowWatchers), x.Value(survey.PendingEvents); !x.IsVigil() && (slow > 0 && slow >= x.Value(survey.Watchers)/2 || waiting > watchLagHigh) {
			report(warning, e.NameOf(x), fmt.Sprintf("%.0f watchers do not keep up and %.0f events wait", slow, waiting), "check whether its clients read their watches")
		}
	}
}

func (e *examination) checkCompaction(report reportFunc) {
	for i := range e.Readings {
		x := &e.Readings[i]
		kept := x.Value(survey.CurrentRevision) - max(0, x.Value(survey.CompactRevision))
		if kept < revisionsHigh {
			continue
		}
		when := "never since the start"
		if at := x.Value(survey.CompactedAt); at > 0 {
			when = screen.Age(e.now.Sub(time.Unix(int64(at), 0))) + " ago"
		}
		report(warning, e.NameOf(x), fmt.Sprintf("%.0f revisions are kept; the last compaction was %s", kept, when), "start the members with --auto-compaction-retention, or: vigilctl compaction REVISION")
	}
}
