package raftnode

import "go.etcd.io/raft/v3/raftpb"

// Single serves single requests on the goroutines of its callers: see DESIGN.md.
type Single struct{ n *Node }

// Propose is Node.Wake where the request is proposed on the goroutine of the caller, which holds no lock that Proposals, Transport or
// Snapshots take. With many requests under way that would make groups smaller.
func (s Single) Propose() { s.n.turns.now() }

// Commit is Propose where the caller may wait until the request is in the log: it is written on the goroutine of the caller, and what
// is to be applied then is returned as by Committed.
func (s Single) Commit() []*raftpb.Message {
	n := s.n
	if !n.appends.claim() {
		n.turns.now()
		return nil
	}
	n.turns.now()
	return n.appender.appendClaimed()
}

// Committed waits for an entry of a few requests, and for nothing else to be done for it but to write it to the log and to apply it.
// It writes it, and returns what is to be applied then; nothing after Stop or a failure, or when stop is closed. So one goroutine is woken
// for a single request instead of several. After a call that has returned something, Done must follow: Node.Committed returns nothing
// before that.
func (s Single) Committed(stop <-chan struct{}) []*raftpb.Message {
	n := s.n
	for {
		var run []*raftpb.Message
		select {
		case <-n.appends.small:
			if n.appends.claim() {
				run = n.appender.appendClaimed()
			}
		case <-n.applies.small:
			if n.applies.claim() {
				run = n.applies.takeClaimedOrEnd()
			}
		case <-n.dead:
			return nil
		case <-stop:
			return nil
		}
		if len(run) > 0 {
			return run
		}
	}
}

// Done reports that what Committed or Commit returned is applied.
func (s Single) Done() { s.n.applies.done() }
