package raftnode

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// storage is the Log as raft sees it. It is used in turns only.
type storage struct {
	log  Log
	hard *raftpb.HardState
	// conf is the newest configuration that was applied.
	conf *raftpb.ConfState
	// snapshots may be nil.
	snapshots Snapshots
	// fetcher reads what is not in memory.
	fetcher *fetcher
	// node is raft itself, once it exists.
	node *raft.RawNode
	// handingOut is set while raft looks for entries to apply, short if it found fewer than there
	// are.
	handingOut, short bool
	// err is the first error of the log itself, on which raft panics.
	err error
}

// majority reports whether members can decide without all others.
func (s *storage) majority(members map[uint64]bool) bool {
	for _, voters := range [][]uint64{s.conf.GetVoters(), s.conf.GetVotersOutgoing()} {
		n := 0
		for _, id := range voters {
			if members[id] {
				n++
			}
		}
		if len(voters) > 0 && n <= len(voters)/2 {
			return false
		}
	}
	return true
}

func (s *storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return s.hard, s.conf, nil
}

// Entries reads no file. If it returns fewer entries than raft asked for, or none, raft takes them
// for all that exist. It sends or hands out no more, and asks again when they have been read.
func (s *storage) Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	ents, err := s.log.Cached(lo, hi, maxBytes)
	switch {
	case err != nil || len(ents) > 0:
	case !s.handingOut && s.node.BasicStatus().RaftState != raft.StateLeader:
		// Before an election raft looks for configuration changes, and needs an answer at once.
		ents, err = s.log.Outline(lo, hi)
	default:
		ents, s.short = s.fetcher.entries(lo, hi, maxBytes)
	}
	return ents, s.note(err)
}

func (s *storage) Term(i uint64) (uint64, error) {
	t, err := s.log.Term(i)
	return t, s.note(err)
}

func (s *storage) LastIndex() (uint64, error) {
	i, err := s.log.LastIndex()
	return i, s.note(err)
}

func (s *storage) FirstIndex() (uint64, error) {
	i, err := s.log.FirstIndex()
	return i, s.note(err)
}

// Snapshot returns the position of the state machine, without data. The sender of the snapshot
// takes the state at that or a later position, and the receiver gets the true one. Raft uses the
// answer only as a lower bound for the receiver's position.
func (s *storage) Snapshot() (*raftpb.Snapshot, error) {
	if s.snapshots == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	index := s.snapshots.Position()
	term, err := s.Term(index)
	if err != nil || index == 0 {
		// The state machine is about to be replaced by a snapshot.
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &index, Term: &term,
		ConfState: s.conf}}, nil
}

func (s *storage) note(err error) error {
	if err != nil && s.err == nil && !errors.Is(err, raft.ErrCompacted) &&
		!errors.Is(err, raft.ErrUnavailable) {
		s.err = err
	}
	return err
}
