package raftnode

import (
	"slices"
	"sync"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// A commit index is not worth a write: after a restart raft finds out again what is committed. The
// exception is the commit of a configuration change. A member that forgets it asks removed members
// for votes, and they never answer. So the commit is settled first: the log on disk holds a commit
// index at or after the change. Only then does the change take effect here, and only then do others
// hear of its commit.

// settled knows up to which index commits are settled.
type settled struct {
	mu struct {
		sync.Mutex
		// wanted is the newest commit index that must be settled, done the newest that is settled.
		wanted, done uint64
		// changed is closed when done changes.
		changed chan struct{}
	}
}

func (s *settled) init() { s.mu.changed = make(chan struct{}) }

// request asks for a commit index to be settled. It reports whether it is not settled yet.
func (s *settled) request(index uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.wanted = max(s.mu.wanted, index)
	return s.mu.done < index
}

// isDue reports whether a commit index up to commit, which the log has now, must be settled.
func (s *settled) isDue(commit uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.done < s.mu.wanted && s.mu.wanted <= commit
}

// noteDurable notes the commit index of the log on disk. It reports whether somebody waits for it.
func (s *settled) noteDurable(commit uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if commit <= s.mu.done {
		return false
	}
	news := s.mu.done < s.mu.wanted
	s.mu.done = commit
	close(s.mu.changed)
	s.mu.changed = make(chan struct{})
	return news
}

// index returns the settled commit index, and a channel that is closed when it changes.
func (s *settled) index() (uint64, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.done, s.mu.changed
}

// settle makes the append stage write a commit index that it has or will get from its queue.
func (n *Node) settle(index uint64) {
	if n.settled.request(index) {
		n.appends.put(&raftpb.Message{Type: raftpb.MsgStorageAppend.Enum(),
			To: new(raft.LocalAppendThread)})
		n.appending.Post()
	}
}

// awaitSettled waits until the commit of a configuration change is settled.
func (n *Node) awaitSettled(index uint64) error {
	n.settle(index)
	for {
		done, changed := n.settled.index()
		if done >= index {
			return nil
		}
		select {
		case <-changed:
		case <-n.dead:
			return ErrStopped
		}
	}
}

// noteConfs notes the configuration changes among entries. These replace the rest of the log from
// their first index on.
func (c *core) noteConfs(ents []*raftpb.Entry) {
	if len(ents) == 0 {
		return
	}
	first := ents[0].GetIndex()
	c.confs = slices.DeleteFunc(c.confs, func(i uint64) bool { return i >= first })
	for _, e := range ents {
		if isConfChange(e) {
			c.confs = append(c.confs, e.GetIndex())
		}
	}
}

// findConfs finds the configuration changes in the log after an index. They are few, and so are the
// entries.
func (c *core) findConfs(log Log, after, last uint64) error {
	for next := after + 1; next <= last; {
		ents, err := log.Outline(next, last+1)
		if err != nil {
			return err
		}
		c.noteConfs(ents)
		next += uint64(len(ents))
	}
	return nil
}

// settleCommitted asks for the commits of configuration changes to be settled.
func (c *core) settleCommitted() {
	newest := uint64(0)
	for _, i := range c.confs {
		if i <= c.committed {
			newest = i
		}
	}
	if newest > c.settling { // once: while the log takes nothing, each message would wait for it
		c.settling, c.out.settle = newest, newest
	}
}

// withhold lowers the commit index of a message, so that it does not reveal a configuration change
// whose commit is not settled.
func (c *core) withhold(m *raftpb.Message) {
	if len(c.confs) > 0 && m.GetCommit() >= c.confs[0] {
		m.Commit = new(c.confs[0] - 1)
		c.withheld = true
	}
}

// takeSettled forgets configuration changes whose commit is settled, and sends others the commit
// index that was withheld from them. That includes the members that the change removes: once it has
// taken effect, they hear nothing more.
func (c *core) takeSettled() {
	if len(c.confs) == 0 {
		return
	}
	done := c.in.settled
	c.confs = slices.DeleteFunc(c.confs, func(i uint64) bool { return i <= done })
	if !c.withheld || len(c.confs) > 0 && c.confs[0] <= c.committed {
		return
	}
	c.withheld = false
	if c.state != raft.StateLeader {
		return
	}
	var out []*raftpb.Message
	c.node.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id != c.o.ID {
			out = append(out, &raftpb.Message{Type: raftpb.MsgHeartbeat.Enum(), From: new(c.o.ID),
				To: new(id), Term: new(c.term),
				Commit: new(min(pr.Match, c.committed))})
		}
	})
	c.out.messages = append(c.out.messages, c.withoutMuted(out)...)
}
