package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
	"vigil/internal/member/raftnode"
	"vigil/internal/store/mvcc"
)

// SnapshotTransport reaches other members. Call asks one with a kind of call, and SendBulk sends it
// metadata and all that r has; it returns nil after the member's ReceiveBulk has.
type SnapshotTransport interface {
	Call(ctx context.Context, to uint64, kind uint8, payload []byte) ([]byte, error)
	SendBulk(ctx context.Context, to uint64, meta []byte, r io.Reader) error
}

const (
	// progressInterval is how often a transfer that goes on for long says how far it is.
	progressInterval = 5 * time.Second
	// minPause and maxPause bound the pause after an attempt that failed.
	minPause = 50 * time.Millisecond
	maxPause = time.Minute
	// cutAttempts is how often a state is cut anew because of a compaction in between.
	cutAttempts = 5
)

var errNotLeader = errors.New("replica: no longer the leader that was to send the snapshot")

// sending is the end of snapshots that sends.
type sending struct {
	mu struct {
		sync.Mutex
		ended bool
		// to are the members that a snapshot is sent to, with the position that it was cut at, 0
		// while it was not.
		to map[uint64]uint64
		// after is when the next attempt may begin, for members that the last one failed for.
		after map[uint64]time.Time
	}
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	full   atomic.Uint64
	part   atomic.Uint64
	failed atomic.Uint64
	bytes  atomic.Uint64
}

func (s *sending) init() {
	s.mu.to, s.mu.after = map[uint64]uint64{}, map[uint64]time.Time{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
}

// begin starts a transfer to a member, unless one is under way, there are too many, or the last one failed
// a short time ago: the pause is as long as the attempt was, so that no more than half of the time goes
// into what is in vain.
func (s *sending) begin(to uint64, most int, run func(ctx context.Context) error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if _, busy := s.mu.to[to]; busy || s.mu.ended || len(s.mu.to) >= most || began.Before(s.mu.after[to]) {
		return false
	}
	s.mu.to[to] = 0
	delete(s.mu.after, to)
	s.wg.Go(func() {
		err := run(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.mu.to, to)
		if err != nil {
			now := time.Now()
			s.mu.after[to] = now.Add(min(max(now.Sub(began), minPause), maxPause))
		}
	})
	return true
}

func (s *sending) cut(to, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.to[to] = index
}

// limit returns up to where the raft log may be given up, if it is cut and the log has bytes: what
// follows a snapshot that is being sent is kept, within bounds.
func (s *sending) limit(cut uint64, most, bytes int64) uint64 {
	if bytes > most {
		return cut
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, index := range s.mu.to {
		if index > 0 {
			cut = min(cut, index)
		}
	}
	return cut
}

// end ends all transfers and waits for them.
func (s *sending) end() {
	s.mu.Lock()
	s.mu.ended = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// snapshotSender is the raftnode.Snapshots of a member.
type snapshotSender struct{ r *Replica }

func (r *Replica) snapshots() raftnode.Snapshots {
	if r.cfg.SnapshotTransport == nil {
		return nil
	}
	return snapshotSender{r}
}

func (s snapshotSender) Position() uint64 { return s.r.applied.Load() }

func (s snapshotSender) Send(m *raftpb.Message) {
	r, to := s.r, m.GetTo()
	begun := r.sending.begin(to, r.cfg.MaxSnapshots, func(ctx context.Context) error {
		err := r.sendSnapshot(ctx, m)
		if err != nil {
			r.sending.failed.Add(1)
			r.cfg.Logger.Warn("sending a snapshot failed; it is tried again", memberAttr(to), slog.Any("error", err))
			r.node.ReportUnreachable(to)
		}
		r.node.ReportSnapshot(to, err == nil)
		return err
	})
	if !begun {
		// Raft asks again.
		r.node.ReportSnapshot(to, false)
	}
}

func memberAttr(id uint64) slog.Attr {
	return slog.String("remote-peer-id", strconv.FormatUint(id, 16))
}

// sendSnapshot brings a member to the present state. A compaction in between needs another cut. The search for a base takes
// the time to read two stores, in which there may always be a compaction: the last attempt does without.
func (r *Replica) sendSnapshot(ctx context.Context, m *raftpb.Message) error {
	for attempt := 1; ; attempt++ {
		err := r.sendCut(ctx, m, attempt < cutAttempts)
		if !errors.Is(err, kv.ErrCompacted) || attempt == cutAttempts {
			return err
		}
	}
}

// sendCut cuts the state, finds out what the member lacks of it if base is set, and sends that.
func (r *Replica) sendCut(ctx context.Context, m *raftpb.Message, base bool) error {
	to, store := m.GetTo(), r.now().store
	cut, err := store.Cut(ctx)
	if err != nil {
		return err
	}
	if want := m.GetSnapshot().GetMetadata().GetIndex(); cut.Applied.Index < want {
		return fmt.Errorf("replica: the state is at %d and not yet at %d", cut.Applied.Index, want)
	}
	r.sending.cut(to, cut.Applied.Index)
	h := snapshotHeader{cluster: r.clusterID, term: m.GetTerm(), at: cut.Applied, revision: cut.Revision, compact: cut.Compact}
	if base {
		if err := r.findBase(ctx, to, store, &h); errors.Is(err, errAhead) {
			r.cfg.Logger.Info("a snapshot is not needed: the member has applied its position", memberAttr(to), slog.Uint64("index", h.at.Index))
			return nil
		} else if err != nil {
			return err
		}
	}
	sc, err := cut.Records(h.base + 1)
	if err != nil {
		return r.noted(err)
	}
	defer sc.Close()
	t := transfer{r: r, to: to, term: m.GetTerm(), ctx: ctx, began: time.Now(), said: time.Now()}
	e := &encoder{sc: sc, meta: cut.Meta, pace: t.pace}
	log := r.cfg.Logger.With(memberAttr(to), slog.Uint64("index", h.at.Index), slog.Int64("revision", h.revision))
	t.log = log
	log.Info("sending a snapshot", slog.Bool("incremental", h.incremental), slog.Int64("from-revision", h.base), slog.Int64("compact-revision", h.compact))
	if err := r.cfg.SnapshotTransport.SendBulk(ctx, to, h.encode(), e); err != nil {
		// What the transport says of an error of the disk is not that error.
		return errors.Join(err, r.noted(sc.Err()))
	}
	if h.incremental {
		r.sending.part.Add(1)
	} else {
		r.sending.full.Add(1)
	}
	log.Info("sent a snapshot", slog.Int64("bytes", t.bytes), slog.Uint64("records", e.records), slog.Duration("took", time.Since(t.began)))
	return nil
}

// errAhead: the member has applied what was to be sent.
var errAhead = errors.New("replica: the member has applied the position of the snapshot")

// findBase asks the member what it has. If its history is the beginning of this one, and holds all
// that the compaction has left, only what is above it needs to be sent. Without an answer in time everything is.
// Errors: errAhead, kv.ErrCompacted, and that of ctx.
func (r *Replica) findBase(ctx context.Context, to uint64, store *mvcc.Store, h *snapshotHeader) error {
	limited, cancel := context.WithTimeout(ctx, r.cfg.SnapshotOfferTimeout)
	defer cancel()
	a, err := r.askOffer(limited, to, h)
	switch {
	case err == nil && a.ahead:
		return errAhead
	case err == nil && (!a.have || a.revision > h.revision || a.revision < max(h.compact, 2)):
		return nil
	}
	var hash uint32
	if err == nil {
		hash, err = store.HashAt(limited, a.revision, h.compact)
		err = r.noted(err)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, kv.ErrCompacted):
		return err
	case err != nil:
		r.cfg.Logger.Warn("cannot find out what a member lacks: it is sent everything", memberAttr(to), slog.Any("error", err))
		return nil
	}
	if hash != a.hash {
		r.cfg.Logger.Warn("a member's history differs: it is sent everything", memberAttr(to), slog.Int64("revision", a.revision),
			slog.Uint64("hash", uint64(hash)), slog.Uint64("remote-hash", uint64(a.hash)))
		return nil
	}
	h.incremental, h.base, h.hash = true, a.revision, a.hash
	return nil
}

func (r *Replica) askOffer(ctx context.Context, to uint64, h *snapshotHeader) (answer, error) {
	b, err := r.cfg.SnapshotTransport.Call(ctx, to, calls.SnapshotOffer, offer{index: h.at.Index, compact: h.compact}.encode())
	if err != nil {
		return answer{}, fmt.Errorf("replica: asking what it has: %w", err)
	}
	return decodeAnswer(b)
}

// transfer is what is known of a transfer under way. It is used by the goroutine that reads.
type transfer struct {
	r           *Replica
	ctx         context.Context
	log         *slog.Logger
	to, term    uint64
	began, said time.Time
	bytes       int64
}

// pace is called before n bytes go.
func (t *transfer) pace(n int) error {
	if st := t.r.node.Status(); st.Lead != t.r.memberID || st.Term != t.term {
		return errNotLeader
	}
	t.bytes += int64(n)
	t.r.sending.bytes.Add(uint64(n))
	if now := time.Now(); now.Sub(t.said) >= progressInterval {
		t.said = now
		t.log.Info("sending a snapshot: progress", slog.Int64("bytes", t.bytes), slog.Duration("for", now.Sub(t.began)))
	}
	if rate := t.r.cfg.SnapshotBytesPerSecond; rate > 0 {
		due := t.began.Add(time.Duration(float64(t.bytes) / float64(rate) * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-t.ctx.Done():
			}
		}
	}
	return t.ctx.Err()
}

// SnapshotStats count snapshots.
type SnapshotStats struct {
	// SentFull and SentIncremental count those that were sent, SendFailures those that were not;
	// SentBytes includes the latter.
	SentFull, SentIncremental, SendFailures, SentBytes uint64
	// Sending is how many are being sent now.
	Sending int
	// Received counts those that arrived whole, Installed those of them that were needed, and
	// ReceiveFailures the others; ReceivedBytes includes all. Installing is set while the store is replaced.
	Received, Installed, ReceiveFailures, ReceivedBytes uint64
	Installing                                          bool
}

func (r *Replica) snapshotStats() SnapshotStats {
	s, c := &r.sending, &r.receiving
	s.mu.Lock()
	sending := len(s.mu.to)
	s.mu.Unlock()
	return SnapshotStats{
		SentFull: s.full.Load(), SentIncremental: s.part.Load(), SendFailures: s.failed.Load(), SentBytes: s.bytes.Load(),
		Sending:  sending,
		Received: c.received.Load(), Installed: c.installed.Load(), ReceiveFailures: c.failed.Load(), ReceivedBytes: c.bytes.Load(),
		Installing: c.installing.Load(),
	}
}
