package raftnode

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/stage"
	"vigil/internal/store/wal"
)

// Log is the raft log on disk. Append has one caller at a time; everything else is called
// concurrently.
type Log interface {
	HardState() *raftpb.HardState
	FirstIndex() (uint64, error)
	LastIndex() (uint64, error)
	Term(index uint64) (uint64, error)
	// Entries may read files, Cached and Outline do not; see wal.WAL.
	Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error)
	Cached(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error)
	Outline(lo, hi uint64) ([]*raftpb.Entry, error)
	// Append writes the batches in order, as one group: all of it is durable when it returns, if
	// one of the batches asks for it.
	Append(batches ...wal.Batch) error
}

// Proposals is where the node takes its proposals from, in a turn.
type Proposals interface {
	// NextGroup returns the next group to propose in a term, nil if there is none. The node is done
	// with the bytes when it calls NextGroup again, or FailOffered.
	NextGroup(term uint64) []byte
	// StampGroup sets the time of a group that this node, the leader of a term, adds to its log. It
	// is called again if raft does not take the group at first.
	StampGroup(term uint64, group []byte)
	// FailOffered fails the group that NextGroup returned last: it was not proposed and never will
	// be.
	FailOffered()
	// FailRefused fails a group that a leader has refused, which begins with head.
	FailRefused(head []byte)
	// Outstanding returns how many groups that NextGroup returned for a term have no outcome yet.
	Outstanding(term uint64) int
}

// Transport carries messages to other members. Send does not block: it drops what it cannot send,
// and raft sends it again. A message arrives at most once. Send is called concurrently.
type Transport interface {
	Send(msgs []*raftpb.Message)
	// ConnectedSince returns since when messages can be sent to a member, the zero time if they
	// cannot. It is called in a turn and must not block.
	ConnectedSince(id uint64) time.Time
}

// Snapshots sends snapshots to members whose next entries are no longer in the log.
type Snapshots interface {
	// Position returns the index of the state machine. Send sends the state at that or a later
	// index. It is called in a turn and must not block.
	Position() uint64
	// Send sends a snapshot for a MsgSnap. It does not block: the state is sent in the background
	// with its actual position, and Node.ReportSnapshot reports the outcome once.
	Send(m *raftpb.Message)
}

// Machine applies committed entries.
type Machine interface {
	// Apply applies a run of messages in order, and returns it with Node.Applied. A message with a
	// snapshot has no entries: the state that was kept for InstallSnapshot replaces the state
	// machine. If prompt is set, Apply does not wait, and returns ErrLeft instead of doing
	// something that takes long: then it is called again with the same run, and goes on. After any
	// other error nothing more is applied.
	Apply(run []*raftpb.Message, prompt bool) error
}

// ErrLeft says that a run is not applied yet.
var ErrLeft = errors.New("raftnode: the run is not applied yet")

// Config configures a Node. ID, Log, ConfState, Line, Proposals, Machine and Ticks are required.
type Config struct {
	ID        uint64
	Log       Log
	ConfState *raftpb.ConfState
	// Applied is the position of the state machine.
	Applied uint64

	// Ticks is the node's clock: it counts elections and heartbeats in them.
	Ticks <-chan time.Time
	// ElectionTicks is the election timeout in ticks, default 10; a heartbeat is sent every
	// HeartbeatTicks, default 1.
	ElectionTicks, HeartbeatTicks int
	// NoPreVote lets a member that knows no leader start an election without first asking whether
	// it could win. After a disconnection it then ends the term of a working leader.
	NoPreVote bool
	// TickInterval is the length of a tick, if known. A leader then logs heartbeats that are more
	// than two heartbeat intervals apart.
	TickInterval time.Duration

	// Line carries out the stages of the node. It must run from Start to the end of Stop.
	Line      *stage.Line
	Proposals Proposals
	Machine   Machine
	// Transport may be nil while there is one member.
	Transport Transport
	// Snapshots may be nil: then a member that needs entries before the log cannot catch up.
	Snapshots Snapshots
	// Logger takes changes of leadership at info, and the library's own lines at debug. Default
	// none.
	Logger *slog.Logger

	// MaxMessage bounds the entries of one message to another member, in bytes; default 1 MiB.
	MaxMessage uint64
	// MaxApplying bounds the entries handed out for applying and not yet acknowledged, in bytes;
	// default 16 MiB. One entry is always handed out.
	MaxApplying uint64
	// MaxUncommitted bounds the entries that a leader has proposed and not committed, in bytes;
	// default 64 MiB. More proposals wait, up to the same size for proposals of other members. A
	// larger proposal waits until nothing is uncommitted, which may never happen, so the bound
	// should be twice the largest proposal. It also bounds the unacknowledged entries sent to a
	// member, which keeps them in memory while its disk is slow; one message may exceed it.
	MaxUncommitted uint64
	// MaxGroup bounds the entries that are appended to the log at once, in bytes; default 64 MiB.
	// One entry is always appended.
	MaxGroup uint64
	// MaxInFlight bounds the number of entries that a leader has proposed and not committed, and of
	// the proposals of any member in a cluster without an outcome; default 2. More requests wait in
	// Proposals, where they become one larger entry.
	MaxInFlight int
}

// Defaults of fields that the users of this package need too.
const (
	DefaultElectionTicks = 10
	DefaultMaxInFlight   = 2
)

func (c *Config) setDefaults() {
	if c.ElectionTicks == 0 {
		c.ElectionTicks = DefaultElectionTicks
	}
	if c.HeartbeatTicks == 0 {
		c.HeartbeatTicks = 1
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxMessage == 0 {
		c.MaxMessage = 1 << 20
	}
	if c.MaxApplying == 0 {
		c.MaxApplying = 16 << 20
	}
	if c.MaxUncommitted == 0 {
		c.MaxUncommitted = 64 << 20
	}
	if c.MaxGroup == 0 {
		c.MaxGroup = 64 << 20
	}
	if c.MaxInFlight == 0 {
		c.MaxInFlight = DefaultMaxInFlight
	}
}

// Validate names every field that is wrong.
func (c *Config) Validate() error {
	var errs []error
	bad := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("raftnode: "+format, args...))
		}
	}
	bad(c.ID != 0, "no member id")
	bad(c.Log != nil, "no log")
	bad(c.ConfState != nil, "no configuration")
	bad(c.Proposals != nil, "no proposals")
	bad(c.Machine != nil, "no state machine")
	bad(c.Line != nil, "no line of stages")
	bad(c.Ticks != nil, "no clock")
	bad(c.HeartbeatTicks > 0, "heartbeat of %d ticks", c.HeartbeatTicks)
	bad(c.ElectionTicks > c.HeartbeatTicks, "election of %d ticks, heartbeat of %d",
		c.ElectionTicks, c.HeartbeatTicks)
	bad(c.MaxGroup <= wal.MaxGroupBytes/4, "groups of %d bytes, the most is %d", c.MaxGroup,
		wal.MaxGroupBytes/4)
	bad(c.MaxInFlight > 0, "%d entries in flight", c.MaxInFlight)
	return errors.Join(errs...)
}
