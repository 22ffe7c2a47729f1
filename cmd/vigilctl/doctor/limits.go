package doctor

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/exit"
)

// limits are the values from which on a measurement is a finding. Those of disks are from etcd's documentation: 10 ms for
// the raft log, 25 ms for the store.
type limits struct {
	raftLog, raftLogCritical, store, apply, peer, clock, archiveLag time.Duration
	quota, quotaCritical, files                                     float64 // percent
	lag, watcherLag, pending, leaders, revisions                    float64
	certificate, certificateCritical                                time.Duration
}

// Limits that no flag changes.
const (
	manyObservations = 1000      // from here on the 99th percentile is worth an alarm
	fewObservations  = 100       // from here on the 90th percentile is: a disk that is slow now and then does not reach it
	minRoundTrips    = 20        // they are measured seldom
	largeQuota       = 8 << 30   // above it etcd logs a warning when it starts
	freeHigh         = 100 << 20 // bytes
)

// flags sets the defaults and returns a flag for each limit, which parses and describes it.
func (l *limits) flags() *pflag.FlagSet {
	f := pflag.NewFlagSet("limit", pflag.ContinueOnError)
	f.SortFlags = false
	f.DurationVar(&l.raftLog, "raft-log", 10*time.Millisecond, "writing the raft log to the disk")
	f.DurationVar(&l.raftLogCritical, "raft-log-critical", 100*time.Millisecond, "as before, for a critical finding")
	f.DurationVar(&l.store, "store", 25*time.Millisecond, "committing to the store")
	f.DurationVar(&l.apply, "apply", 100*time.Millisecond, "applying a write")
	f.DurationVar(&l.peer, "round-trip", 100*time.Millisecond, "a round trip to another member")
	f.DurationVar(&l.clock, "clock", time.Second, "the difference of two clocks")
	f.Float64Var(&l.quota, "quota", 80, "percent of the quota that are used")
	f.Float64Var(&l.quotaCritical, "quota-critical", 95, "as before, for a critical finding")
	f.Float64Var(&l.lag, "lag", 5000, "entries that a member has still to apply")
	f.Float64Var(&l.watcherLag, "watcher-lag", 10_000, "revisions that a watcher has not received")
	f.Float64Var(&l.pending, "pending", 100, "writes that wait for agreement")
	f.Float64Var(&l.leaders, "leader-changes", 3, "changes of the leader in an hour, after the first five")
	f.Float64Var(&l.revisions, "revisions", 1_000_000, "revisions that are not compacted")
	f.Lookup("revisions").DefValue = "1000000" // not 1e+06
	f.DurationVar(&l.archiveLag, "archive-lag", time.Minute, "the time of writes that are not archived")
	f.Float64Var(&l.files, "open-files", 80, "percent of the file descriptors that are open")
	f.DurationVar(&l.certificate, "certificate", 30*24*time.Hour, "the time until a certificate expires")
	f.DurationVar(&l.certificateCritical, "certificate-critical", 7*24*time.Hour, "as before, for a critical finding")
	return f
}

// defaults returns the limits without flags.
func defaults() limits {
	var l limits
	l.flags()
	return l
}

// parseLimits sets the limits of texts NAME=VALUE.
func parseLimits(texts []string) (limits, error) {
	var l limits
	f := l.flags()
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		flag := f.Lookup(name)
		if !ok || flag == nil {
			return l, exit.Usage("--limit %s: want NAME=VALUE, where NAME is one of: %s", text, strings.Join(limitNames(), ", "))
		}
		if err := f.Set(name, value); err != nil || strings.HasPrefix(value, "-") || strings.EqualFold(value, "nan") {
			return l, exit.Usage("--limit %s: the value must be like %s, and not negative", text, flag.DefValue)
		}
	}
	return l, nil
}

// limitNames returns the names of all limits.
func limitNames() (names []string) {
	var l limits
	l.flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// validateChecks rejects names of no check.
func validateChecks(names []string) error {
	for _, name := range names {
		if !slices.Contains(checkNames(), name) {
			return exit.Usage("--skip %s: no check has this name; the checks are: %s", name, strings.Join(checkNames(), ", "))
		}
	}
	return nil
}

// checkNames returns the names of all checks.
func checkNames() (names []string) {
	for i := range checks {
		names = append(names, checks[i].name)
	}
	return names
}
