package raftnode

import (
	"errors"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// storage shows the Log to raft. It is owned by the raft goroutine.
type storage struct {
	log  Log
	hard *raftpb.HardState
	conf *raftpb.ConfState
	// err is the first error of the log itself: raft panics on it, this says why.
	err error
}

func (s *storage) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return s.hard, s.conf, nil
}

func (s *storage) Entries(lo, hi, maxBytes uint64) ([]*raftpb.Entry, error) {
	ents, err := s.log.Entries(lo, hi, maxBytes)
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

// Snapshot has nothing to offer until there are checkpoints; raft asks again.
func (s *storage) Snapshot() (*raftpb.Snapshot, error) {
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}

func (s *storage) note(err error) error {
	if err != nil && s.err == nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
		s.err = err
	}
	return err
}
