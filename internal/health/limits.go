package health

import "time"

// Limits are the values at which a measurement becomes a finding. The limits for disks are from
// etcd's documentation: 10 ms for the raft log, 25 ms for the store.
type Limits struct {
	RaftLog, RaftLogCritical time.Duration // writing the raft log to the disk
	Store, Apply             time.Duration
	RoundTrip                time.Duration // to another member
	Clock                    time.Duration // the difference of two clocks
	Quota, QuotaCritical     float64       // percent of the quota
	ArchiveLag               time.Duration // of writes that are not archived
	OpenFiles                float64       // percent of the file descriptors
	// the leader's entries that a member still has to apply
	Lag                              float64
	WatcherLag                       float64       // revisions that a watcher has still to receive
	Pending                          float64       // writes that wait for agreement
	LeaderChanges                    float64       // in an hour, after the first five
	Revisions                        float64       // revisions that are not compacted
	Certificate, CertificateCritical time.Duration // until one expires
}

// Defaults returns the limits that apply unless flags set others.
func Defaults() Limits {
	const day = 24 * time.Hour
	return Limits{
		RaftLog: 10 * time.Millisecond, RaftLogCritical: 100 * time.Millisecond,
		Store: 25 * time.Millisecond, Apply: 100 * time.Millisecond,
		RoundTrip: 100 * time.Millisecond, Clock: time.Second, Quota: 80, QuotaCritical: 95,
		OpenFiles: 80, Lag: 5000, WatcherLag: 10_000,
		ArchiveLag: time.Minute, Pending: 100, LeaderChanges: 3, Revisions: 1_000_000,
		Certificate: 30 * day, CertificateCritical: 7 * day,
	}
}

// Limits that no flag changes.
const (
	manyObservations = 1000 // enough to judge the 99th percentile
	// enough to judge the 90th percentile: a disk that is slow now and then does not reach the
	// limit
	fewObservations = 100
	minRoundTrips   = 20 // there is one per second for each other member
	// enough to judge the average, if they took most of the time: a very slow disk writes rarely
	busyObservations = 10
	// seconds that a write waits for agreement, while others are applied
	longWait   = 1
	largeQuota = 8 << 30   // above it etcd logs a warning at the start
	freeHigh   = 100 << 20 // bytes
)
