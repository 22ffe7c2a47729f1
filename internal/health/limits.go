package health

import "time"

// Limits are the values from which on a measurement is a finding. Those of disks are from etcd's
// documentation: 10 ms for the raft log, 25 ms for the store.
type Limits struct {
	RaftLog, RaftLogCritical         time.Duration // writing the raft log to the disk
	Store, Apply                     time.Duration
	RoundTrip                        time.Duration // to another member
	Clock                            time.Duration // the difference of two clocks
	Quota, QuotaCritical             float64       // percent of the quota
	ArchiveLag                       time.Duration // of writes that are not archived
	OpenFiles                        float64       // percent of the file descriptors
	Lag                              float64       // entries that a member has still to apply
	WatcherLag                       float64       // revisions that a watcher has not received
	Pending                          float64       // writes that wait for agreement
	LeaderChanges                    float64       // in an hour, after the first five
	Revisions                        float64       // that are not compacted
	Certificate, CertificateCritical time.Duration // until one expires
}

// Defaults returns the limits without a reason for others.
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
	manyObservations = 1000 // from here on the 99th percentile is worth an alarm
	// from here on the 90th percentile is: a disk that is slow now and then does not reach it
	fewObservations = 100
	minRoundTrips   = 20 // there is one a second for each other member
	// from here on the average is, if they took most of the time: a disk that is very slow writes
	// seldom
	busyObservations = 10
	// seconds that a write waits for agreement, while others are applied
	longWait   = 1
	largeQuota = 8 << 30   // above it etcd logs a warning when it starts
	freeHigh   = 100 << 20 // bytes
)
