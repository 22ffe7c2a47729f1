package raftnode

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"vigil/internal/kv"
)

// fetcher reads entries that are only on disk, on its own goroutine, because a turn must not wait
// for a disk. A later turn gets them. Entries are read in chunks, and the chunk after one in use is
// read ahead.
type fetcher struct {
	log Log
	// chunkBytes is the size of a chunk, keepBytes the size of all kept chunks. An entry may be
	// larger.
	chunkBytes, keepBytes uint64

	mu struct {
		sync.Mutex
		wanted  []uint64 // first indexes of the chunks to read; the first one is being read
		chunks  []*chunk // by their last use
		bytes   uint64
		arrived bool // a read has ended since takeArrived was called
		ticks   int
		closed  bool
	}
	// ready is signaled when wanted stops being empty, or closed is set.
	ready sync.Cond
}

// chunk is a sequence of entries.
type chunk struct {
	ents  []*raftpb.Entry
	bytes uint64
	used  int // the tick of its last use
}

// keepChunks is the number of chunks that are kept whatever their size: the one in use, and the one
// read ahead.
const keepChunks = 2

func (f *fetcher) init(c *Config) {
	f.log = c.Log
	f.chunkBytes, f.keepBytes = max(c.MaxMessage, c.MaxApplying/4), 2*c.MaxApplying
	f.ready.L = &f.mu
}

// entries returns the entries from lo to hi, without hi: as many as are there without a gap and
// encode to at most maxBytes, but at least one if it is there. short reports that one is missing,
// which is then fetched.
func (f *fetcher) entries(lo, hi, maxBytes uint64) (ents []*raftpb.Entry, short bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var size uint64
	for lo < hi {
		c := f.findChunk(lo)
		if c == nil {
			f.requestChunk(lo)
			return ents, true
		}
		first := c.ents[0].GetIndex()
		if next := first + uint64(len(c.ents)); next < hi && f.findChunk(next) == nil {
			f.requestChunk(next)
		}
		for _, e := range c.ents[lo-first:] {
			if size += uint64(proto.Size(e)); lo == hi || len(ents) > 0 && size > maxBytes {
				return ents, false
			}
			ents = append(ents, e)
			lo++
		}
	}
	return ents, false
}

// findChunk returns the chunk that has an entry, if it still matches the log. mu is held.
func (f *fetcher) findChunk(index uint64) *chunk {
	for i := len(f.mu.chunks) - 1; i >= 0; i-- {
		c := f.mu.chunks[i]
		first, last := c.ents[0].GetIndex(), c.ents[len(c.ents)-1]
		if index < first || index > last.GetIndex() {
			continue
		}
		// The entries before one of the same index and term are the same.
		if term, err := f.log.Term(last.GetIndex()); err != nil || term != last.GetTerm() {
			f.dropChunk(i)
			continue
		}
		c.used = f.mu.ticks
		f.mu.chunks = append(slices.Delete(f.mu.chunks, i, i+1), c)
		return c
	}
	return nil
}

// requestChunk lets the chunk be read that begins at an index. mu is held.
func (f *fetcher) requestChunk(index uint64) {
	if !slices.Contains(f.mu.wanted, index) {
		f.mu.wanted = append(f.mu.wanted, index)
		f.ready.Signal()
	}
}

// dropChunk forgets a chunk. mu is held.
func (f *fetcher) dropChunk(i int) {
	f.mu.bytes -= f.mu.chunks[i].bytes
	f.mu.chunks = slices.Delete(f.mu.chunks, i, i+1)
}

// takeArrived reports whether a read has ended since the last call.
func (f *fetcher) takeArrived() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	arrived := f.mu.arrived
	f.mu.arrived = false
	return arrived
}

// dropUnused drops chunks that were not used for most ticks.
func (f *fetcher) dropUnused(most int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.ticks++
	for len(f.mu.chunks) > 0 && f.mu.ticks-f.mu.chunks[0].used > most {
		f.dropChunk(0)
	}
}

func (f *fetcher) close() {
	f.mu.Lock()
	f.mu.closed = true
	f.mu.Unlock()
	f.ready.Broadcast()
}

// nextWanted waits for something to read.
func (f *fetcher) nextWanted() (index uint64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for len(f.mu.wanted) == 0 && !f.mu.closed {
		f.ready.Wait()
	}
	if f.mu.closed {
		return 0, false
	}
	return f.mu.wanted[0], true
}

// readChunk reads a chunk. Entries that are no longer there are not an error: raft finds that out
// itself.
func (f *fetcher) readChunk(index uint64) error {
	last, err := f.log.LastIndex()
	var ents []*raftpb.Entry
	if err == nil && index <= last {
		ents, err = f.log.Entries(index, last+1, f.chunkBytes)
	}
	if err != nil && !errors.Is(err, raft.ErrCompacted) && !errors.Is(err, raft.ErrUnavailable) {
		return err
	}
	c := &chunk{ents: ents}
	for _, e := range ents {
		c.bytes += uint64(proto.Size(e))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.wanted = f.mu.wanted[1:]
	f.mu.arrived = true
	if len(ents) == 0 {
		return nil
	}
	c.used = f.mu.ticks
	f.mu.chunks = append(f.mu.chunks, c)
	f.mu.bytes += c.bytes
	for f.mu.bytes > f.keepBytes && len(f.mu.chunks) > keepChunks {
		f.dropChunk(0)
	}
	return nil
}

// runFetcher is the fetch goroutine.
func (n *Node) runFetcher() {
	for {
		index, ok := n.fetcher.nextWanted()
		if !ok {
			return
		}
		err := n.fetcher.readChunk(index)
		if kv.Shortage(err) {
			n.cfg.Logger.Warn("the raft log cannot be read and is tried again", "error", err)
			select {
			case <-time.After(appendPause):
				continue
			case <-n.stop:
				return
			}
		}
		if err != nil {
			n.fail(fmt.Errorf("raft log: %w", err))
			return
		}
		n.wake()
	}
}

// retryFetched makes raft ask again for entries that it lacked.
func (c *core) retryFetched() {
	if !c.in.fetched {
		return
	}
	c.moved = true // entries to apply
	st := c.node.BasicStatus()
	if st.RaftState != raft.StateLeader {
		return
	}
	// Raft sends entries to a member when it hears from it. For a member that it heard from
	// recently, another answer to a heartbeat carries no other information.
	for id, p := range c.progress() {
		if id != c.o.ID && p.Active && p.Match < c.last {
			_ = c.node.Step(&raftpb.Message{Type: raftpb.MsgHeartbeatResp.Enum(), From: &id,
				To: &c.o.ID, Term: new(st.HardState.GetTerm())})
		}
	}
}
