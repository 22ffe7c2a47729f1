package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/access"
	"vigil/internal/member/replica/timing"
	"vigil/internal/member/replica/transfer"
	"vigil/internal/member/replica/truncate"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/wal"
	"vigil/internal/store/watch"
	"vigil/internal/vfs"
)

// Config configures a member. FS, the directories and Name are required, and InitialMembers if
// there are no data yet. The zero value of the other fields is their default.
type Config struct {
	FS vfs.FS
	// WALDir holds the raft log, HistoryDir the store. They are made if need be. Nothing else may
	// use them: a caller that shares a machine locks the data directory first.
	WALDir, HistoryDir string
	// Lock, if set, is the lock of the data directory. It is kept while the member runs.
	Lock vfs.Keeper

	// Name is the member's name, ClientURLs where clients reach it. The member publishes both to
	// the cluster when they change.
	Name       string
	ClientURLs []string
	// InitialMembers is the cluster to begin with, by name and peer URLs, and Token keeps apart
	// clusters that begin alike. Both are used only if there is no data yet.
	InitialMembers []cluster.Member
	Token          string
	// UnsharedNames: other members know InitialMembers under other names. Then the state that all
	// members begin with has no names, and each member publishes its name.
	UnsharedNames bool

	// TickInterval is the unit of the election clock, by default 100 ms; an election starts after
	// ElectionTicks without a leader, by default 10.
	TickInterval  time.Duration
	ElectionTicks int
	// NoPreVote is raftnode.Config.NoPreVote. NoInitialElectionTickAdvance leaves a member that
	// starts and finds others, and no leader among them, to wait for a whole election timeout.
	NoPreVote, NoInitialElectionTickAdvance bool

	// RequestTimeout bounds how long a request waits for its outcome; by default 5 s and two
	// election timeouts.
	RequestTimeout time.Duration
	// WarnApplyDuration is how long carrying out a request, or a read altogether, may take before a
	// line about it is logged, by default 100 ms; negative means never. A request that took longer
	// than NoteSteps, by default 150 ms, gets its Steps set.
	WarnApplyDuration, NoteSteps time.Duration
	// Tracer, if set, exports the steps of requests.
	Tracer timing.Tracer
	// MaxRequestBytes bounds the encoding of one request; by default 1.5 MiB, at most
	// fsm.MaxRequestBytes.
	MaxRequestBytes int
	// MaxGroupBytes is the size at which a group takes no more requests; by default 1 MiB. A
	// larger request is a group by itself.
	MaxGroupBytes int
	// MaxGroupRequests is the number of requests at which a group takes no more; by default 4096.
	MaxGroupRequests int
	// MaxPendingBytes bounds the requests that wait for their outcome, encoded; by default 64 MiB
	// and two of the largest requests. Large requests leave a part of it for others.
	MaxPendingBytes int64
	// MaxInFlight bounds the groups that are proposed and not committed; by default 2. Requests
	// beyond wait and become one larger group.
	MaxInFlight int
	// MaxApplyLag is the number of entries committed and not applied at which writes are refused;
	// by default 5000.
	MaxApplyLag uint64
	// MaxBatchBytes is the size of entries, or of the records that they write, at which the apply
	// goroutine ends a batch of the store; by default 1 MiB. All entries that are waiting share a
	// batch up to that. An entry that writes several times as much is divided.
	MaxBatchBytes int

	// SnapshotCount is the number of requests, and SnapshotBytes the size of entries,
	// after which the store is synced and the raft log shortened; by default 10000 and 64 MiB.
	SnapshotCount uint64
	SnapshotBytes int64
	// SnapshotCatchUpEntries is the number of entries that are kept for members that lag, up to
	// CatchUpBytes of them; by default 5000 and 64 MiB.
	SnapshotCatchUpEntries uint64
	CatchUpBytes           int64

	// QuotaBytes is the size of live data at which the member raises the alarm NOSPACE, which stops
	// puts in the whole cluster; 0 or less means none. A server uses DefaultQuotaBytes.
	QuotaBytes int64
	// ScrubBytesPerSecond is how fast the store is read over and over to find damage, ScrubPause
	// how long the scrubber rests between two rounds, by default an hour. 0 or less means no
	// scrubbing. A server uses DefaultScrubBytesPerSecond.
	ScrubBytesPerSecond int64
	ScrubPause          time.Duration

	// CorruptCheckInterval is how often the leader compares the data of all members, by default 10
	// minutes; CompactHashCheckInterval how often the hashes that compactions have left, by
	// default a minute. Negative means never. Comparing takes at most a fiftieth of the time,
	// however large the data are.
	CorruptCheckInterval, CompactHashCheckInterval time.Duration
	// NoInitialCorruptCheck leaves out comparing with other members before the member serves.
	NoInitialCorruptCheck bool

	// WALSegmentBytes and HistorySegmentBytes are the sizes of segments, see wal and history.
	WALSegmentBytes, HistorySegmentBytes int64
	// Store and Watch are handed on; their loggers are set if they have none.
	Store mvcc.Options
	Watch watch.Options

	// SnapshotBytesPerSecond limits the rate at which each snapshot is sent; 0 means no limit.
	SnapshotBytesPerSecond int64
	// MaxSnapshots is how many snapshots are sent at once, by default 2. Members beyond wait.
	MaxSnapshots int
	// MaxCatchUpBytes is how large the raft log may grow while it is kept for members that lag, or
	// that a snapshot is sent to: with the entries that they lack they need no snapshot, or no
	// other. 0 is a quarter of the free space on its disk, at most 16 GiB.
	MaxCatchUpBytes int64
	// SnapshotOfferTimeout limits how long the leader compares its history with a receiver's, which
	// takes about the time to read both stores, and how long the receiver keeps a copy for it; by
	// default 5 minutes.
	SnapshotOfferTimeout time.Duration

	// Hold, if set, keeps entries of the raft log for an archive when the log is shortened, unless
	// the disk is full.
	Hold truncate.Hold

	// LeaseCheckpointInterval is how often the remaining TTL of a lease is replicated, by default
	// every 5 minutes.
	LeaseCheckpointInterval time.Duration

	// Clock returns the time of the day, by default time.Now; tests set it.
	Clock func() time.Time

	// Joining, if set, is the cluster that the member joins, and replaces InitialMembers and Token.
	// It is used only if there are no data yet. The member gets its state in a snapshot.
	Joining *Joining
	// ForceNewCluster makes this member the only one of its cluster, with all the data it has.
	ForceNewCluster bool
	// LaxReconfig leaves out the checks that a quorum of members is there after a change of the
	// membership. MaxLearners bounds the learners; by default 1, and a negative number allows none.
	LaxReconfig bool
	MaxLearners int
	// JWT signs and verifies tokens. It is nil if tokens are simple, which are valid for TokenTTL
	// after their last use, by default 5 minutes. BcryptCost is the cost of hashing a password,
	// default 10.
	JWT        access.JWT
	TokenTTL   time.Duration
	BcryptCost int

	// Logger gets the lines for operators; by default none.
	Logger *slog.Logger
	// NoSync leaves every sync out. A crash of the machine may then lose or corrupt anything.
	NoSync bool
}

// Defaults of a server for settings of which 0 means none.
const (
	DefaultQuotaBytes          = 2 << 30
	DefaultScrubBytesPerSecond = 8 << 20
)

// Joining identifies a new member of an existing cluster.
type Joining struct {
	ClusterID, MemberID uint64
	// Members are the members of the cluster, with their ids, this one among them.
	Members []cluster.Member
}

// WithDefaults returns c with every zero field set to its default.
func (c Config) WithDefaults() Config {
	or(&c.TickInterval, 100*time.Millisecond)
	or(&c.ElectionTicks, raftnode.DefaultElectionTicks)
	or(&c.RequestTimeout, kv.RequestTimeout(time.Duration(c.ElectionTicks)*c.TickInterval))
	or(&c.WarnApplyDuration, 100*time.Millisecond)
	or(&c.NoteSteps, 150*time.Millisecond)
	or(&c.MaxRequestBytes, kv.DefaultMaxRequestBytes)
	or(&c.MaxGroupBytes, 1<<20)
	or(&c.MaxGroupRequests, 4096)
	or(&c.MaxPendingBytes, c.twoLargest())
	or(&c.MaxInFlight, raftnode.DefaultMaxInFlight)
	or(&c.MaxApplyLag, 5000)
	or(&c.MaxBatchBytes, 1<<20)
	or(&c.SnapshotCount, 10000)
	or(&c.SnapshotBytes, 64<<20)
	or(&c.SnapshotCatchUpEntries, 5000)
	or(&c.CatchUpBytes, 64<<20)
	or(&c.MaxSnapshots, 2)
	or(&c.SnapshotOfferTimeout, 5*time.Minute)
	or(&c.ScrubPause, time.Hour)
	or(&c.LeaseCheckpointInterval, 5*time.Minute)
	if c.Clock == nil {
		c.Clock = time.Now
	}
	or(&c.CorruptCheckInterval, 10*time.Minute)
	or(&c.CompactHashCheckInterval, time.Minute)
	or(&c.MaxLearners, 1)
	or(&c.Logger, slog.New(slog.DiscardHandler))
	or(&c.Store.Logger, c.Logger)
	or(&c.Watch.Logger, c.Logger)
	return c
}

// twoLargest is the size of two of the largest requests next to which there is room for others.
func (c *Config) twoLargest() int64 { return 64<<20 + 2*int64(c.MaxRequestBytes) }

func or[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// The most that MaxGroupBytes and MaxBatchBytes may be.
const (
	maxGroup = 4 << 20
	maxBatch = 64 << 20
)

// Validate names every field that is wrong.
func (c Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("replica: "+format, args...))
		}
	}
	require(c.FS != nil, "no file system")
	require(c.WALDir != "" && c.HistoryDir != "", "no directories")
	require(c.WALDir != c.HistoryDir,
		"one directory for both the raft log and the store: choose another --wal-dir")
	require(c.Name != "", "no member name")
	require(c.TickInterval >= 0, "tick interval %v", c.TickInterval)
	require(c.ElectionTicks == 0 || c.ElectionTicks > 1, "election timeout of %d ticks",
		c.ElectionTicks)
	require(c.RequestTimeout >= 0, "request timeout %v", c.RequestTimeout)
	require(c.MaxRequestBytes >= 0 && c.MaxRequestBytes <= fsm.MaxRequestBytes,
		"request limit of %d bytes, the most is %d", c.MaxRequestBytes, fsm.MaxRequestBytes)
	require(c.MaxGroupBytes >= 0 && c.MaxGroupBytes <= maxGroup,
		"group limit of %d bytes, the most is %d", c.MaxGroupBytes, maxGroup)
	require(c.MaxBatchBytes >= 0 && c.MaxBatchBytes <= maxBatch,
		"batch limit of %d bytes, the most is %d", c.MaxBatchBytes, maxBatch)
	if err := cluster.CheckClientURLs(c.ClientURLs); err != nil {
		errs = append(errs, fmt.Errorf("replica: %w", err))
	}
	require(c.MaxInFlight >= 0, "%d groups in flight", c.MaxInFlight)
	return errors.Join(errs...)
}

func (c *Config) place() transfer.Place {
	return transfer.Place{FS: c.FS, HistoryDir: c.HistoryDir, WALDir: c.WALDir, NoSync: c.NoSync,
		Logger: c.Logger}
}

// smallSegment is the size of a segment of the raft log that has room for the largest entry of
// requests.
func (c *Config) smallSegment() int64 {
	return min(max(2<<20, int64(c.MaxGroupBytes)+int64(c.MaxRequestBytes)+64<<10), 1<<30)
}

func (c *Config) walOptions(id wal.Identity) wal.Options {
	return wal.Options{FS: c.FS, Dir: c.WALDir, ID: id, SegmentBytes: c.WALSegmentBytes,
		SmallSegmentBytes: c.smallSegment(),
		Logger:            c.Logger, NoSync: c.NoSync}
}

func (c *Config) historyOptions(id wal.Identity) history.Options {
	return history.Options{FS: c.FS, Dir: c.HistoryDir, SegmentBytes: c.HistorySegmentBytes,
		ClusterID: id.ClusterID, MemberID: id.MemberID, Logger: c.Logger, NoSync: c.NoSync}
}

// LogHold keeps entries of the raft log that are needed elsewhere.
type LogHold = truncate.Hold

// Network reaches the other members: with raft messages, calls and snapshots.
type Network interface {
	raftnode.Transport
	transfer.Network
	// SetMembers sets the membership as of a position of the log, at the start and after changes.
	// It does not block.
	SetMembers(index uint64, members *cluster.State)
}

// raftTransport returns the network for raft, nil if there is none.
func (r *Replica) raftTransport() raftnode.Transport {
	if r.network == nil {
		return nil
	}
	return r.network
}
