package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/wal"
)

// receiveBatch is about how many bytes of records are one batch of the store that is built aside.
const receiveBatch = 1 << 20

var errReceiving = errors.New("replica: another snapshot is being received")

// receiving is the end of snapshots that receives.
type receiving struct {
	// slot holds a token from an offer or the begin of a transfer until what is aside is gone or
	// installed. It guards base, and what lies in the directories beside the store.
	slot chan struct{}
	// base is what the last offer has put aside. It goes when no transfer follows in time: while it is there its
	// files take space.
	base *base

	mu struct {
		sync.Mutex
		ended bool
		// in is the state that is being received.
		in *incoming
		// holder is what has the slot, nil while nothing has it that could be ended.
		holder *holder
		// expiry removes the base.
		expiry *time.Timer
		// waiting is the position that raft has accepted; done is closed when it is installed.
		waiting history.Applied
		done    chan struct{}
	}
	received, installed, failed, bytes atomic.Uint64
	installing                         atomic.Bool
}

// base is a copy of the store that lies aside, for a member to say what it lacks.
type base struct {
	from       uint64 // the member
	checkpoint history.Checkpoint
	hash       uint32
}

func (c *receiving) init() { c.slot = make(chan struct{}, 1) }

func (c *receiving) take() bool {
	select {
	case c.slot <- struct{}{}:
		return true
	default:
		return false
	}
}

func (c *receiving) free() { <-c.slot }

// holder is an offer or a transfer under way.
type holder struct {
	// from is the leader that asked, in term; 0 if this member did not know it as one.
	from, term uint64
	// offering: it is an offer. Its answer means nothing to a leader that goes on to something else.
	offering bool
	end      func()
}

// held notes what has the slot, nil for nothing.
func (c *receiving) held(h *holder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.holder = h
}

// end closes what is being received, so that nothing is written any more.
func (c *receiving) end() {
	c.mu.Lock()
	in := c.mu.in
	c.mu.ended, c.mu.in = true, nil
	if c.mu.expiry != nil {
		c.mu.expiry.Stop()
	}
	c.mu.Unlock()
	if in != nil {
		in.abandon()
	}
}

// hold makes in the state that is being received. It returns false, and closes it, after end.
func (c *receiving) hold(in *incoming) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.ended {
		in.abandon()
		return false
	}
	c.mu.in = in
	return true
}

// OfferSnapshot answers a member that is about to send a snapshot (calls.SnapshotOffer) with what this one has:
// its history up to a revision, a copy of which it puts aside, and the hash of it. It takes links and the
// time to read all records, and delays nothing else. Whatever fails about that, the answer is that there is no such
// copy, so that everything is sent: a member whose data are damaged is healed by that. Errors: kv.ErrStopped, those of
// ctx, and that another snapshot is on its way.
func (r *Replica) OfferSnapshot(ctx context.Context, from uint64, payload []byte) ([]byte, error) {
	o, err := decodeOffer(payload)
	if err != nil {
		return nil, err
	}
	ctx, done, err := r.errand(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := r.claim(ctx, from); err != nil {
		return nil, err
	}
	defer r.receiving.free()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	hold := &holder{from: from, offering: true, end: func() { cancel(errReceiving) }}
	if st := r.node.Status(); st.Lead == from {
		hold.term = st.Term
	}
	r.receiving.held(hold)
	defer r.receiving.held(nil)
	a, err := r.offerBase(ctx, from, o)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		r.cfg.Logger.Warn("cannot offer this member's history to add a snapshot to; everything is sent", memberAttr(from), slog.Any("error", err))
		return answer{}.encode(), nil
	}
	return a.encode(), nil
}

// offerBase puts a copy of the store aside if it helps.
func (r *Replica) offerBase(ctx context.Context, from uint64, o offer) (a answer, err error) {
	if err := r.dropBase(); err != nil {
		return a, err
	}
	h := r.now()
	if h.log.Applied().Index >= o.index {
		return answer{ahead: true}, nil
	}
	if h.store.Revision() < max(o.compact, 2) {
		return a, nil
	}
	dir := r.cfg.HistoryDir + incomingSuffix
	cp, err := h.log.Checkpoint(ctx, dir, "")
	if err != nil {
		return a, r.noted(err)
	}
	hash, err := h.store.HashAt(ctx, cp.Revision, o.compact)
	if errors.Is(err, kv.ErrCompacted) || errors.Is(err, kv.ErrFutureRev) {
		// It has compacted what it would be compared by.
		return a, r.cfg.removeDir(dir)
	}
	if err != nil {
		return a, errors.Join(r.noted(err), r.cfg.removeDir(dir))
	}
	b := &base{from: from, checkpoint: cp, hash: hash}
	r.receiving.base = b
	r.receiving.mu.Lock()
	r.receiving.mu.expiry = time.AfterFunc(r.cfg.SnapshotOfferTimeout, func() { r.expireBase(b) })
	r.receiving.mu.Unlock()
	return answer{have: true, revision: cp.Revision, hash: hash}, nil
}

// dropBase removes what an offer has put aside. The caller has the slot.
func (r *Replica) dropBase() error {
	r.takeBase()
	return r.cfg.removeDir(r.cfg.HistoryDir + incomingSuffix)
}

// takeBase returns what an offer has put aside, nil for nothing. The caller has the slot and answers for the directory.
func (r *Replica) takeBase() *base {
	c := &r.receiving
	b := c.base
	c.base = nil
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.expiry != nil {
		c.mu.expiry.Stop()
		c.mu.expiry = nil
	}
	return b
}

// expireBase removes what an offer has put aside if it is still there.
func (r *Replica) expireBase(b *base) {
	if !r.errands.begin() {
		return
	}
	defer r.errands.running.Done()
	if !r.receiving.take() {
		return // what has the slot removes it, or uses it
	}
	defer r.receiving.free()
	if r.receiving.base != b {
		return
	}
	if err := r.dropBase(); err != nil {
		r.cfg.Logger.Warn("a copy of the store that no snapshot was added to could not be removed; the next offer or start does", slog.Any("error", err))
	}
}

// claim takes the slot for a leader. It ends what a former leader has it for, which may be gone without a word: it would be some
// seconds until its connection is taken for dead, in which this member may be the one that is missing for a quorum.
// And it ends an offer of the same leader, which has given up waiting for the answer.
func (r *Replica) claim(ctx context.Context, from uint64) error {
	c := &r.receiving
	if c.take() {
		return nil
	}
	st := r.node.Status()
	c.mu.Lock()
	h := c.mu.holder
	c.mu.Unlock()
	if h == nil || !(h.offering && h.from == from) && !(st.Lead == from && h.term < st.Term) {
		return errReceiving
	}
	h.end()
	select {
	case c.slot <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-r.stopping:
		return kv.ErrStopped
	}
}

// ReceiveBulk takes a snapshot that a leader sends: it builds the state in a directory beside the store,
// checks it, makes it durable, and returns nil when it serves, or raft has no need of it. Then a new
// attempt is not needed either. After an error what was received is gone, unless the member is
// stopping: then the next start finds out. One snapshot is received at a time.
//
// Close the connection that stream comes from before Stop: it is not interrupted otherwise. It is closed here when another
// leader is about to send a snapshot.
func (r *Replica) ReceiveBulk(ctx context.Context, from uint64, meta []byte, stream io.ReadCloser) error {
	h, err := decodeSnapshotHeader(meta)
	if err == nil && h.cluster != r.clusterID {
		err = fmt.Errorf("replica: a snapshot of cluster %x for a member of %x", h.cluster, r.clusterID)
	}
	if err != nil {
		r.receiving.failed.Add(1)
		return err
	}
	if err := r.claim(ctx, from); err != nil {
		return err
	}
	defer r.receiving.free()
	log := r.cfg.Logger.With(memberAttr(from), slog.Uint64("index", h.at.Index), slog.Int64("revision", h.revision))
	began := time.Now()
	log.Info("receiving a snapshot", slog.Bool("incremental", h.incremental), slog.Int64("from-revision", h.base))
	r.receiving.held(&holder{from: from, term: h.term, end: func() { _ = stream.Close() }})
	in, err := r.receive(from, &h, stream, log)
	r.receiving.held(nil)
	if err != nil {
		r.receiving.failed.Add(1)
		log.Warn("receiving a snapshot failed", slog.Any("error", err))
		return err
	}
	r.receiving.received.Add(1)
	log.Info("received a snapshot", slog.Int64("bytes", in.bytes), slog.Uint64("records", in.records), slog.Duration("took", time.Since(began)))
	return r.hand(from, &h, in, log)
}

// receive builds the state aside, whole and durable under a name that says its position.
func (r *Replica) receive(from uint64, h *snapshotHeader, stream io.Reader, log *slog.Logger) (in *incoming, err error) {
	in, err = r.prepare(from, h)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			r.discard(in)
		}
	}()
	d := newDecoder(stream)
	said, counted := time.Now(), int64(0)
	for {
		it, err := d.next()
		r.receiving.bytes.Add(uint64(d.bytes - counted))
		counted = d.bytes
		if err == io.EOF {
			break
		}
		if err == nil {
			err = in.add(&it)
		}
		if err != nil {
			return in, err
		}
		if now := time.Now(); d.records%1024 == 0 && now.Sub(said) >= progressInterval {
			said = now
			log.Info("receiving a snapshot: progress", slog.Int64("bytes", d.bytes), slog.Uint64("records", d.records))
		}
	}
	in.bytes, in.records = d.bytes, d.records
	return in, in.finish(r)
}

// prepare makes what the records go to.
func (r *Replica) prepare(from uint64, h *snapshotHeader) (*incoming, error) {
	c := &r.cfg
	o := c.historyOptions(wal.Identity{ClusterID: r.clusterID, MemberID: r.memberID})
	o.Dir = c.HistoryDir + incomingSuffix
	b := r.takeBase()
	in := &incoming{c: c, dir: o.Dir, h: h}
	var err error
	if h.incremental {
		if b == nil || b.from != from || b.checkpoint.Revision != h.base || b.hash != h.hash || b.checkpoint.Applied.Index >= h.at.Index {
			return nil, errors.Join(errors.New("replica: a snapshot from a revision that was not offered"), c.removeDir(o.Dir))
		}
		in.log, err = history.Open(o)
	} else {
		if err = c.removeDir(o.Dir); err == nil {
			in.log, err = history.Create(o, history.Applied{}, nil)
		}
	}
	if err != nil {
		return nil, errors.Join(err, c.removeDir(o.Dir))
	}
	in.at = in.log.Applied()
	if !r.receiving.hold(in) {
		return nil, kv.ErrStopped
	}
	return in, nil
}

// discard throws away what was received.
func (r *Replica) discard(in *incoming) {
	r.receiving.mu.Lock()
	ended := r.receiving.mu.ended
	r.receiving.mu.in = nil
	r.receiving.mu.Unlock()
	if ended {
		return // the next start does
	}
	in.abandon()
	if err := r.cfg.dropIncoming(in.dir); err != nil {
		r.cfg.Logger.Warn("a snapshot that is not needed could not be removed; the next start does", slog.String("dir", in.dir), slog.Any("error", err))
	}
}

// hand gives the state to raft and waits until it serves, or raft says that it need not.
func (r *Replica) hand(from uint64, h *snapshotHeader, in *incoming, log *slog.Logger) error {
	done := make(chan struct{})
	r.receiving.mu.Lock()
	r.receiving.mu.in = nil
	r.receiving.mu.waiting, r.receiving.mu.done = h.at, done
	r.receiving.mu.Unlock()
	accepted, err := r.node.InstallSnapshot(&raftpb.Message{
		Type: raftpb.MsgSnap.Enum(), From: &from, To: &r.memberID, Term: &h.term,
		Snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{Index: &h.at.Index, Term: &h.at.Term, ConfState: in.conf}},
	})
	switch {
	case err != nil:
		return kv.ErrStopped
	case !accepted:
		log.Info("the snapshot is not needed")
		r.discard(in)
		return nil
	}
	select {
	case <-done:
		return nil
	case <-r.stopping:
		return kv.ErrStopped
	}
}

// incoming is a state that is being received.
type incoming struct {
	c   *Config
	dir string
	h   *snapshotHeader
	// at is where the part that was there before ends.
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

// add takes an item.
func (in *incoming) add(it *item) error {
	if it.rev == (kv.Rev{}) {
		in.meta = append(in.meta, it.meta)
		return nil
	}
	if it.rev.Main <= in.h.base || it.rev.Main > in.h.revision {
		return badStream("a record of revision %d between %d and %d", it.rev.Main, in.h.base, in.h.revision)
	}
	if err := mvcc.CheckRecord(it.rev, it.tombstone, it.data); err != nil {
		return badStream("%v", err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return kv.ErrStopped
	}
	if _, err := in.log.AppendKV(it.rev, it.tombstone, it.data); err != nil {
		return badStream("%v", err)
	}
	if in.pending += len(it.data) + 64; in.pending < receiveBatch {
		return nil
	}
	in.pending = 0
	return in.log.Commit(in.at)
}

// finish checks that the state is what the header says, and makes it durable, under a name that says
// its position.
func (in *incoming) finish(r *Replica) error {
	contents, err := fsm.ReadContents(in.meta)
	if err != nil {
		return badStream("%v", err)
	}
	if _, ok := contents.Members.Member(r.memberID); !ok {
		return fmt.Errorf("replica: member %x is not in the membership of the snapshot", r.memberID)
	}
	in.conf = contents.Conf
	compact, err := mvcc.CompactRevision(in.meta)
	if err != nil || compact != in.h.compact {
		return badStream("compact revision %d, announced %d (%v)", compact, in.h.compact, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed {
		return kv.ErrStopped
	}
	// The writer's view: the last records may not be committed yet.
	if rev := max(in.log.WriterView().Last(), compact, 1); rev != in.h.revision {
		return badStream("it ends at revision %d, announced %d", rev, in.h.revision)
	}
	for _, m := range in.changes() {
		if err := in.log.AppendMeta(m); err != nil {
			return err
		}
	}
	if err := in.log.Commit(in.h.at); err != nil {
		return err
	}
	in.closed = true
	if err := in.log.Close(); err != nil {
		return err
	}
	ready := in.c.readyDir(in.h.at)
	// An earlier one of this position that came to nothing and could not be removed.
	if err := in.c.removeDir(ready); err != nil {
		return err
	}
	if err := in.c.FS.Rename(in.dir, ready); err != nil {
		return err
	}
	in.dir = ready
	return in.c.syncParent()
}

// changes returns what turns the meta records that are there into those of the snapshot, in order.
func (in *incoming) changes() []history.Meta {
	type name struct {
		bucket byte
		key    string
	}
	gone := map[name]history.Meta{}
	for _, m := range in.log.AllMeta() {
		m.Value, m.Deleted = nil, true
		gone[name{m.Bucket, string(m.Key)}] = m
	}
	for _, m := range in.meta {
		delete(gone, name{m.Bucket, string(m.Key)})
	}
	return append(slices.Collect(maps.Values(gone)), in.meta...)
}

// abandon closes the log, whatever becomes of it.
func (in *incoming) abandon() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.closed = true
		in.log.Retire()
		_ = in.log.Close()
	}
}
