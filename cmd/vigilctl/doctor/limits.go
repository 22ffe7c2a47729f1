package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"vigil/cmd/vigilctl/exit"
	"vigil/internal/health"
)

// limitFlags sets limits to their defaults, and returns a flag for each, which parses and describes
// it.
func limitFlags(l *health.Limits) *pflag.FlagSet {
	*l = health.Defaults()
	f := pflag.NewFlagSet("limit", pflag.ContinueOnError)
	f.SortFlags = false
	f.DurationVar(&l.RaftLog, "raft-log", l.RaftLog, "writing the raft log to the disk")
	f.DurationVar(&l.RaftLogCritical, "raft-log-critical", l.RaftLogCritical,
		"as before, for a critical finding")
	f.DurationVar(&l.Store, "store", l.Store, "committing to the store")
	f.DurationVar(&l.Apply, "apply", l.Apply, "applying a write")
	f.DurationVar(&l.RoundTrip, "round-trip", l.RoundTrip, "a round trip to another member")
	f.DurationVar(&l.Clock, "clock", l.Clock, "the difference of two clocks")
	f.Float64Var(&l.Quota, "quota", l.Quota, "percent of the quota that are used")
	f.Float64Var(&l.QuotaCritical, "quota-critical", l.QuotaCritical,
		"as before, for a critical finding")
	f.Float64Var(&l.Lag, "lag", l.Lag, "entries that a member has still to apply")
	f.Float64Var(&l.WatcherLag, "watcher-lag", l.WatcherLag,
		"revisions that a watcher has not received")
	f.Float64Var(&l.Pending, "pending", l.Pending, "writes that wait for agreement")
	f.Float64Var(&l.LeaderChanges, "leader-changes", l.LeaderChanges,
		"changes of the leader in an hour, after the first five")
	f.Float64Var(&l.Revisions, "revisions", l.Revisions, "revisions that are not compacted")
	f.Lookup("revisions").DefValue = fmt.Sprintf("%.0f", l.Revisions) // not 1e+06
	f.DurationVar(&l.ArchiveLag, "archive-lag", l.ArchiveLag,
		"the time of writes that are not archived")
	f.Float64Var(&l.OpenFiles, "open-files", l.OpenFiles,
		"percent of the file descriptors that are open")
	f.DurationVar(&l.Certificate, "certificate", l.Certificate,
		"the time until a certificate expires")
	f.DurationVar(&l.CertificateCritical, "certificate-critical", l.CertificateCritical,
		"as before, for a critical finding")
	return f
}

// parseLimits sets limits from texts of the form NAME=VALUE.
func parseLimits(texts []string) (health.Limits, error) {
	var l health.Limits
	f := limitFlags(&l)
	for _, text := range texts {
		name, value, ok := strings.Cut(text, "=")
		flag := f.Lookup(name)
		if !ok || flag == nil {
			return l, exit.Usage("--limit %s: want NAME=VALUE, where NAME is one of: %s", text,
				strings.Join(limitNames(), ", "))
		}
		if err := f.Set(name, value); err != nil || strings.HasPrefix(value, "-") ||
			strings.EqualFold(value, "nan") {
			return l, exit.Usage("--limit %s: the value must be like %s, and not negative",
				text, flag.DefValue)
		}
	}
	return l, nil
}

// limitNames returns the names of all limits.
func limitNames() (names []string) {
	var l health.Limits
	limitFlags(&l).VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// validateChecks rejects names that no check has.
func validateChecks(names []string) error {
	for _, name := range names {
		if !slices.Contains(checkNames(), name) {
			return exit.Usage("--skip %s: no check has this name; the checks are: %s", name,
				strings.Join(checkNames(), ", "))
		}
	}
	return nil
}

// checkNames returns the names of all checks.
func checkNames() (names []string) {
	for _, c := range health.Checks() {
		names = append(names, c.Name)
	}
	return names
}
