// Package setup has what the simulation and its processes exchange: configurations and reports.
package setup

import "vigil/sim/check"

// MaxRequestBytes is the largest request that members accept. Events of more than that and 512 KiB
// are sent in fragments.
const MaxRequestBytes = 128 << 10

// Member configures a member.
type Member struct {
	Name, ClientURL string
	// ListenPeerURLs are where it listens for other members. They know PeerURL when it starts for
	// the first time.
	PeerURL                               string
	ListenPeerURLs                        []string
	InitialCluster, InitialClusterState   string
	SnapshotCount, SnapshotCatchUpEntries uint64
	QuotaBytes                            int64
	// These are in nanoseconds.
	ProgressInterval, ElectionTimeout, HeartbeatInterval int64
	// StopAddress is where it listens for the request to stop.
	StopAddress string
	// LaxReconfig lets the members change while some of them cannot be reached.
	LaxReconfig bool
	// ForceNewCluster makes it the only member of its cluster.
	ForceNewCluster bool
	// ScrubPause and CorruptCheckInterval are how often damage and differences between the members
	// are looked for, in nanoseconds.
	ScrubPause, CorruptCheckInterval int64
	// SegmentBytes and HistoryBytes are the sizes of the files of the raft log and of the history;
	// 0 for what the program has.
	SegmentBytes, HistoryBytes int64
}

// Client configures a process with clients and watchers. Times are of the simulation, in
// nanoseconds.
type Client struct {
	Seed      uint64
	First     int // the number of its first client
	Endpoints []string
	Workers   int // clients that write and ask for linearizable reads
	Readers   int // clients of serializable reads, at one member each
	Watchers  int
	Compact   bool // it compacts from time to time
	Think     int64
	Stop      int64 // work ends
	Work      []string
	Users     bool // clients must authenticate
	// QuotaBytes is the quota of the members, for the work on it.
	QuotaBytes int64
	Address    string // of its machine
	Last       bool   // it makes the last write then, and asks all members for their hash
	// StopAddress is where it listens for the request to stop.
	StopAddress string
	// Healed is when all faults have ended. Calm clients wait long between two operations before,
	// and their watchers request progress rarely.
	Healed int64
	Calm   bool
	// Wave and Lull follow each other until then: in a lull little happens. There are none if Lull
	// is 0.
	Wave, Lull int64
	Large      bool // many values are large
}

// LullLeft returns how long the lull at a time still lasts, 0 if there is none.
func (c *Client) LullLeft(at int64) int64 {
	if c.Lull == 0 || at >= c.Healed || at%(c.Wave+c.Lull) < c.Wave {
		return 0
	}
	return min(c.Wave+c.Lull-at%(c.Wave+c.Lull), c.Healed-at)
}

// Works are the kinds of work that a client can have besides its operations, in order.
var Works = []string{
	"alarms",
	"backup",
	"bare",
	"comparison",
	"crowd",
	"downgrade",
	"leases",
	"locks",
	"mirrors",
	"pages",
	"queues",
	"watch options",
}

// Users is the work on users and permissions. All other clients authenticate as the user root then.
const Users = "users"

// Authenticated are the kinds of work that can authenticate: those that make no call without the
// library.
var Authenticated = []string{"comparison", "downgrade", "leases", "locks", "mirrors", "queues"}

// Quota is the work on a small quota that is used up. It looks after the space, so that it goes
// without the kinds of work in Large, which need much of it, or raise its alarm themselves.
const Quota = "quota"

// Large are the kinds of work that do not fit with Quota.
var Large = []string{"alarms", "crowd", "watch options"}

// Operator configures a process that transfers leadership from member to member.
type Operator struct {
	Seed      uint64
	Endpoints []string
	Pause     int64 // the longest time between two transfers, in nanoseconds
	Users     bool  // clients must authenticate
}

// Probe configures a process that writes until a write succeeds.
type Probe struct {
	Endpoints []string
	Users     bool // clients must authenticate
}

// Stop configures a process that requests others to stop.
type Stop struct{ Addresses []string }

// Report is a message of a process to the simulation. One field is set.
type Report struct {
	Op *check.Op `json:",omitempty"`
	// Watcher is the name of a watcher with its range, and Message what it received.
	Watcher *Watcher       `json:",omitempty"`
	Message *check.Message `json:",omitempty"`
	Lease   *check.LeaseOp `json:",omitempty"`
	Lock    *check.LockOp  `json:",omitempty"`
	Alarm   *check.AlarmOp `json:",omitempty"`
	// Permit is what a user may do for some time, and Access what it did.
	Permit *check.PermitSpan `json:",omitempty"`
	Access *check.Access     `json:",omitempty"`
	// Sight is what the watch of a user received.
	Sight *check.Sight `json:",omitempty"`
	// Receivers are the numbers of watchers that received Message, if Watcher is nil.
	Receivers []int `json:",omitempty"`
	// Canceled is the number of a watcher that receives nothing any more, by its own wish.
	Canceled int `json:",omitempty"`
	// Compact is a revision that is about to be compacted.
	Compact int64 `json:",omitempty"`
	// Failed is an observation that is a violation.
	Failed string `json:",omitempty"`
	// Probed is when the write of a probe succeeded.
	Probed int64 `json:",omitempty"`
	// Ended says that the work of the process has ended, and only its watchers go on.
	Ended bool `json:",omitempty"`
	// Rescued says that a cluster was rescued with --force-new-cluster.
	Rescued bool `json:",omitempty"`
	// Final is the revision of the last write.
	Final int64 `json:",omitempty"`
	Hash  *Hash `json:",omitempty"`
	// Status is what a member says about the cluster.
	Status *Status `json:",omitempty"`
	// Members are those of the cluster, and Moving the member that is about to get another address.
	Members *Members `json:",omitempty"`
	Moving  string   `json:",omitempty"`
}

// Watcher is a watcher of the keys from From to To, all if To is empty.
type Watcher struct {
	Name, From, To string
	// Endpoint is the only member that it uses; empty if it uses all.
	Endpoint string
	// Number is that of a watcher without the library, counted from 1 by all processes.
	Number int `json:",omitempty"`
	check.Filter
	// Next is the revision from which it watches.
	Next int64
	// Messages is how many it received before.
	Messages int
}

// Hash is the hash of a member's keys at a revision.
type Hash struct {
	Endpoint string
	Rev      int64
	Hash     uint32
	Compact  int64
}
