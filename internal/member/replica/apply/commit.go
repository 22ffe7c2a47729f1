package apply

import (
	"time"

	"vigil/internal/kv"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/auth"
	"vigil/internal/state/cluster"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lease"
	"vigil/internal/state/lineage"
	"vigil/internal/store/history"
)

// Commit is the effect of one batch, or of the snapshot that has replaced the store. Apply emits
// one for each, and its subscribers must not keep it.
type Commit struct {
	// At is the position of the last entry whose effect is complete.
	At history.Applied
	// Revision is the newest revision. Events are the events of the batch, up to it.
	Revision int64
	Events   []kv.Event
	// Installed: a snapshot has replaced the store. Its changes have no events.
	Installed bool

	// The replicated state as of the batch. State that did not change is the same value as before.
	Members  *cluster.State
	Alarms   []kv.Alarm
	Versions kv.Versions
	Users    *auth.State
	Leases   *lease.State
	Lineage  *lineage.State

	// UsersChanged: Users differ from the commit before.
	UsersChanged bool
	// Tokens were issued. TokensEnd is the index up to which unused tokens end, 0 for none.
	Tokens    []fsm.Token
	TokensEnd uint64

	// Groups are the proposals of this member whose entries are complete, with their results.
	Groups []*proposal.Group
	// Requests and Bytes are the size of the entries that are complete.
	Requests uint64
	Bytes    int64
}

// Subscriber is a part of the member that follows its commits. Follow is called by the apply stage,
// once for each commit. It neither waits for anything nor keeps the commit.
type Subscriber struct {
	Name   string // for tests
	Follow func(*Commit)
}

// Subscribers are called for each commit in their order, before and after its state can be read.
type Subscribers struct{ Before, After []Subscriber }

// commitBatch commits the batch under way and emits its commit.
func (a *Applier) commitBatch() error {
	a.prepareCommit()
	began := time.Now()
	pub, err := a.commitStore()
	if err != nil {
		return err
	}
	a.o.Timings.CountCommit(time.Since(began))
	a.o.Raft.Advance()
	if a.claimed == nil {
		a.o.Queue.NoteCommitted()
	}
	a.last.Revision, a.last.Events = pub.Revision, pub.Events
	a.emitCommit()
	clear(a.groups)
	a.groups, a.tokens, a.tokensEnd = a.groups[:0], a.tokens[:0], 0
	a.requests, a.bytes = 0, 0
	return nil
}

// prepareCommit makes the next commit, and tells the subscribers that must know it before its state
// can be read. It is called again if the batch could not be committed at first.
func (a *Applier) prepareCommit() {
	m := a.machine
	a.last = Commit{
		At:       a.at,
		Members:  m.Members(),
		Alarms:   m.Alarms(),
		Versions: m.Versions(),
		Users:    m.Auth(),
		Leases:   m.Leases(),
		Lineage:  m.Lineage(),

		UsersChanged: m.Auth() != a.announced,
		Tokens:       a.tokens,
		TokensEnd:    a.tokensEnd,
		Groups:       a.groups,
		Requests:     a.requests,
		Bytes:        int64(a.bytes),
	}
	for _, s := range a.o.Subscribers.Before {
		s.Follow(&a.last)
	}
}

// emitCommit passes the commit to the subscribers. Its state can be read.
func (a *Applier) emitCommit() {
	a.announced = a.last.Users
	for _, s := range a.o.Subscribers.After {
		s.Follow(&a.last)
	}
	a.last = Commit{}
}

// Answer gives the groups of a commit their results. It is a subscriber.
func (a *Applier) Answer(c *Commit) {
	for _, g := range c.Groups {
		a.started = g.Resolve(a.started)
		a.o.Queue.Release(g)
	}
	a.deliver()
	if len(c.Groups) > 0 && a.o.Raft.Status().Among && a.o.Queue.HasNext() {
		// There is room in flight again.
		a.o.Raft.Wake()
	}
}
