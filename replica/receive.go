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

	"vigil/fsm"
	"vigil/history"
	"vigil/kv"
	"vigil/mvcc"
	"vigil/wal"
)

// receiveBatch is about how many bytes of records are one batch of the store that is built aside.
const receiveBatch = 1 << 20

var errReceiving = errors.New("replica: another snapshot is being received")

// receiving is the end of snapshots that receives.
type receiving struct {
	// slot holds a token from an offer or the begin of a transfer until what is aside is gone or
	// installed. It guards base, and what lies in the directories beside the store.
	slot chan struct{}
	// base is what the last offer has put aside.
	base *base

	mu struct {
		sync.Mutex
		ended bool
		// in is the state that is being received.
		in *incoming
		// stream is where it comes from, while it does, and term the one in which the sender leads.
		stream io.Closer
		term   uint64
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

// from notes where a state comes from, nil when it comes no more.
func (c *receiving) from(stream io.Closer, term uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.stream, c.mu.term = stream, term
}

// end closes what is being received, so that nothing is written any more.
func (c *receiving) end() {
	c.mu.Lock()
	in := c.mu.in
	c.mu.ended, c.mu.in = true, nil
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

// OfferSnapshot answers a member that is about to send a snapshot (CallSnapshotOffer) with what this one has:
// its history up to a revision, a copy of which it puts aside, and the hash of it. It takes links and the
// time to read all records, and delays nothing else. Errors: kv.ErrStopped, those of ctx, and of the disk.
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
	if !r.receiving.take() && !r.supersede(ctx, from) {
		return nil, errReceiving
	}
	defer r.receiving.free()

	dir := r.cfg.HistoryDir + incomingSuffix
	r.receiving.base = nil
	if err := r.cfg.removeDir(dir); err != nil {
		return nil, err
	}
	h := r.now()
	if rev := h.store.Revision(); rev < max(o.compact, 2) || h.log.Applied().Index >= o.index {
		return answer{}.encode(), nil
	}
	cp, err := h.log.Checkpoint(ctx, dir, "")
	if err != nil {
		return nil, err
	}
	hash, err := h.store.HashAt(ctx, cp.Revision, o.compact)
	if errors.Is(err, kv.ErrCompacted) || errors.Is(err, kv.ErrFutureRev) {
		// It has compacted what it would be compared by.
		return answer{}.encode(), r.cfg.removeDir(dir)
	}
	if err != nil {
		return nil, errors.Join(err, r.cfg.removeDir(dir))
	}
	r.receiving.base = &base{from: from, checkpoint: cp, hash: hash}
	return answer{have: true, revision: cp.Revision, hash: hash}.encode(), nil
}

// supersede ends the transfer of a former leader for from, which leads now, and takes its place. The former one may be
// gone without a word: it would be some seconds until its connection is taken for dead, in which this member may be the one that
// is missing for a quorum.
func (r *Replica) supersede(ctx context.Context, from uint64) bool {
	c := &r.receiving
	st := r.node.Status()
	c.mu.Lock()
	stream := c.mu.stream
	if st.Lead != from || c.mu.term >= st.Term {
		stream = nil
	}
	c.mu.Unlock()
	if stream == nil {
		return false
	}
	_ = stream.Close()
	select {
	case c.slot <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
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
	if !r.receiving.take() {
		return errReceiving
	}
	defer r.receiving.free()
	log := r.cfg.Logger.With(memberAttr(from), slog.Uint64("index", h.at.Index), slog.Int64("revision", h.revision))
	began := time.Now()
	log.Info("receiving a snapshot", slog.Bool("incremental", h.incremental), slog.Int64("from-revision", h.base))
	r.receiving.from(stream, h.term)
	in, err := r.receive(from, &h, stream, log)
	r.receiving.from(nil, 0)
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
	b := r.receiving.base
	r.receiving.base = nil
	in := &incoming{c: c, dir: o.Dir, h: h}
	var err error
	if h.incremental {
		if b == nil || b.from != from || b.checkpoint.Revision != h.base || b.hash != h.hash || b.checkpoint.Applied.Index >= h.at.Index {
			return nil, errors.New("replica: a snapshot from a revision that was not offered")
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
	contents, err := fsm.Read(in.meta)
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
