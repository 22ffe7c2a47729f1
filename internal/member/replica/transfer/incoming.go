package transfer

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/stream"
)

// batchBytes is the approximate size of the records in one batch of the store that is built aside.
const batchBytes = 1 << 20

// incoming is a state that is being received.
type incoming struct {
	place *Place
	dir   string
	h     *Header
	// at is the position of the part that existed before.
	at   history.Applied
	meta []history.Meta
	conf *raftpb.ConfState

	pending int // bytes since the last batch
	bytes   int64
	records uint64
	mu      sync.Mutex
	log     *history.Log
	closed  bool
}

// addItem adds an item.
func (in *incoming) addItem(it *stream.Item) error {
	if it.Rev == (kv.Rev{}) {
		in.meta = append(in.meta, it.Meta)
		return nil
	}
	if it.Rev.Main <= in.h.Base || it.Rev.Main > in.h.Revision {
		return badStream("a record of revision %d between %d and %d", it.Rev.Main,
			in.h.Base, in.h.Revision)
	}
	if err := mvcc.CheckRecord(it.Rev, it.Tombstone, it.Data); err != nil {
		return badStream("%v", err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return kv.ErrStopped
	}
	in.log.SetTime(it.Time)
	if _, err := in.log.AppendKV(it.Rev, it.Tombstone, it.Data); err != nil {
		return badStream("%v", err)
	}
	return in.countRecord(len(it.Data))
}

// countRecord counts a record of n bytes, and ends a batch that is large enough: the store is not
// read before it is whole. mu is held.
func (in *incoming) countRecord(n int) error {
	if in.pending += n + 64; in.pending < batchBytes {
		return nil
	}
	in.pending = 0
	return in.log.Commit(in.at)
}

// finishState checks that the state agrees with the header, and makes it durable, under a name that
// contains its position.
func (in *incoming) finishState(member uint64) error {
	contents, err := fsm.ReadContents(in.meta)
	if err != nil {
		return badStream("%v", err)
	}
	if _, ok := contents.Members.Member(member); !ok {
		return fmt.Errorf("transfer: member %x is not in the membership of the snapshot", member)
	}
	in.conf = contents.Conf
	compact, err := mvcc.CompactRevision(in.meta)
	if err != nil || compact != in.h.Compact {
		return badStream("compact revision %d, announced %d (%v)", compact, in.h.Compact, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return kv.ErrStopped
	}
	// The writer's view: the last records may not be committed yet.
	if rev := max(in.log.WriterView().Last(), compact, 1); rev != in.h.Revision {
		return badStream("it ends at revision %d, announced %d", rev, in.h.Revision)
	}
	if err := in.appendMeta(); err != nil {
		return err
	}
	if err := in.log.Commit(in.h.At); err != nil {
		return err
	}
	in.closed = true
	if err := in.log.Close(); err != nil {
		return err
	}
	ready := in.place.ReadyDir(in.h.At)
	// Remove an earlier state of this position, which was not needed and could not be removed then.
	if err := in.place.RemoveDir(ready); err != nil {
		return err
	}
	if err := in.place.FS.Rename(in.dir, ready); err != nil {
		return err
	}
	in.dir = ready
	return in.place.SyncParent()
}

// appendMeta replaces the meta records with the snapshot's. Together they may be too large for a
// batch. mu is held.
func (in *incoming) appendMeta() error {
	for _, m := range in.metaChanges() {
		if err := in.log.AppendMeta(m); err != nil {
			return err
		}
		if err := in.countRecord(len(m.Key) + len(m.Value)); err != nil {
			return err
		}
	}
	return nil
}

// metaChanges returns the changes that turn the present meta records into the snapshot's, in order.
func (in *incoming) metaChanges() []history.Meta {
	type name struct {
		bucket byte
		key    string
	}
	deleted := map[name]history.Meta{}
	for _, m := range in.log.AllMeta() {
		m.Value, m.Deleted = nil, true
		deleted[name{m.Bucket, string(m.Key)}] = m
	}
	for _, m := range in.meta {
		delete(deleted, name{m.Bucket, string(m.Key)})
	}
	return append(slices.Collect(maps.Values(deleted)), in.meta...)
}

// abandon closes the log without finishing it.
func (in *incoming) abandon() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.closed = true
		in.log.Retire()
		_ = in.log.Close()
	}
}
