package transfer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/calls"
	"vigil/internal/store/mvcc"
	"vigil/internal/store/stream"
)

const (
	// minPause and maxPause limit the pause after an attempt that failed.
	minPause = 50 * time.Millisecond
	maxPause = time.Minute
	// cutAttempts is how often a state is cut again because of a concurrent compaction.
	cutAttempts = 5
)

var (
	errNotLeader = errors.New("transfer: no longer the leader that was to send the snapshot")
	// errAhead: the member has applied the position of the snapshot.
	errAhead = errors.New("transfer: the member has applied the position of the snapshot")
)

// Sender sends snapshots. It implements raftnode.Snapshots for its member.
type Sender struct {
	o    Options
	raft Raft
	mu   struct {
		sync.Mutex
		closed bool
		// to has the members that are being sent a snapshot, with the position at which the sender
		// cut it, 0 before the cut.
		to map[uint64]uint64
		// sent has the members that were sent a snapshot and may not have installed it yet.
		sent map[uint64]hold
		// exhausted is set while the log is too large to be kept for members that lag.
		exhausted bool
		// after is when the next attempt may begin, for members whose last attempt failed.
		after map[uint64]time.Time
	}
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	full, incremental, failed, bytes atomic.Uint64
}

// NewSender returns a Sender. SetRaft completes it.
func NewSender(o Options) *Sender {
	s := &Sender{o: o}
	s.mu.to, s.mu.sent, s.mu.after = map[uint64]uint64{}, map[uint64]hold{}, map[uint64]time.Time{}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// SetRaft sets the raft node, before the node starts.
func (s *Sender) SetRaft(r Raft) { s.raft = r }

// beginTransfer starts a transfer to a member, unless one is under way, there are too many, or the
// last one failed a short time ago: the pause is as long as the attempt was, so that failing
// attempts take at most half of the time.
func (s *Sender) beginTransfer(to uint64, run func(ctx context.Context) error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	began := time.Now()
	if _, busy := s.mu.to[to]; busy || s.mu.closed || len(s.mu.to) >= s.o.MaxSending ||
		began.Before(s.mu.after[to]) {
		return false
	}
	s.mu.to[to] = 0
	delete(s.mu.after, to)
	s.wg.Go(func() {
		err := run(s.ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		now := time.Now()
		if at := s.mu.to[to]; err == nil && at > 0 {
			s.mu.sent[to] = hold{at, now}
		}
		delete(s.mu.to, to)
		if err != nil {
			s.mu.after[to] = now.Add(min(max(now.Sub(began), minPause), maxPause))
		}
	})
	return true
}

// noteCut notes the position of the snapshot that is sent to a member.
func (s *Sender) noteCut(to, index uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.to[to] = index
}

// Close ends all transfers and waits for them.
func (s *Sender) Close() {
	s.mu.Lock()
	s.mu.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// Stats returns the present figures.
func (s *Sender) Stats() SendStats {
	s.mu.Lock()
	sending := len(s.mu.to)
	s.mu.Unlock()
	return SendStats{Full: s.full.Load(), Incremental: s.incremental.Load(),
		Failures: s.failed.Load(), Bytes: s.bytes.Load(), Sending: sending}
}

// Position implements raftnode.Snapshots.
func (s *Sender) Position() uint64 { return s.o.Member.Applied() }

// Send implements raftnode.Snapshots: it sends a snapshot in the background.
func (s *Sender) Send(m *raftpb.Message) {
	to := m.GetTo()
	begun := s.beginTransfer(to, func(ctx context.Context) error {
		err := s.send(ctx, m)
		if err != nil {
			s.failed.Add(1)
			s.o.Logger.Warn("sending a snapshot failed; it is tried again", memberAttr(to),
				slog.Any("error", err))
			s.raft.ReportUnreachable(to)
		}
		s.raft.ReportSnapshot(to, err == nil)
		return err
	})
	if !begun {
		// Raft repeats the request.
		s.raft.ReportSnapshot(to, false)
	}
}

// send brings a member to the present state. After a concurrent compaction it cuts the state again.
// The search for a base reads two stores, and a compaction may happen before it ends, so the last
// attempt omits the search.
func (s *Sender) send(ctx context.Context, m *raftpb.Message) error {
	for attempt := 1; ; attempt++ {
		err := s.sendCut(ctx, m, attempt < cutAttempts)
		if !errors.Is(err, kv.ErrCompacted) || attempt == cutAttempts {
			return err
		}
	}
}

// sendCut cuts the state and sends it, or only the part that the member lacks if findBase is set.
func (s *Sender) sendCut(ctx context.Context, m *raftpb.Message, findBase bool) error {
	to := m.GetTo()
	_, store := s.o.Member.Present()
	cut, err := store.Cut(ctx)
	if err != nil {
		return err
	}
	if want := m.GetSnapshot().GetMetadata().GetIndex(); cut.Applied.Index < want {
		return fmt.Errorf("transfer: the state is at %d and not yet at %d", cut.Applied.Index, want)
	}
	s.noteCut(to, cut.Applied.Index)
	h := Header{Cluster: s.o.ClusterID, Term: m.GetTerm(), At: cut.Applied, Revision: cut.Revision,
		Compact: cut.Compact}
	if findBase {
		if err := s.findBase(ctx, to, store, &h); errors.Is(err, errAhead) {
			s.o.Logger.Info("a snapshot is not needed: the member has applied its position",
				memberAttr(to), slog.Uint64("index", h.At.Index))
			return nil
		} else if err != nil {
			return err
		}
	}
	sc, err := cut.Records(h.Base + 1)
	if err != nil {
		return s.o.NoteDamage(err)
	}
	defer sc.Close()
	log := s.o.Logger.With(memberAttr(to), slog.Uint64("index", h.At.Index),
		slog.Int64("revision", h.Revision))
	p := pacer{s: s, ctx: ctx, log: log, term: m.GetTerm(), began: time.Now(), logged: time.Now()}
	e := stream.NewEncoder(sc, cut.Meta)
	e.Pace = p.pace
	log.Info("sending a snapshot", slog.Bool("incremental", h.Incremental),
		slog.Int64("from-revision", h.Base), slog.Int64("compact-revision", h.Compact))
	if err := s.o.Network.SendBulk(ctx, to, h.Encode(), e); err != nil {
		// The transport does not return a disk error unchanged.
		return errors.Join(err, s.o.NoteDamage(sc.Err()))
	}
	if h.Incremental {
		s.incremental.Add(1)
	} else {
		s.full.Add(1)
	}
	log.Info("sent a snapshot", slog.Int64("bytes", p.bytes), slog.Uint64("records", e.Records()),
		slog.Duration("took", time.Since(p.began)))
	return nil
}

// findBase asks the member for its history. If its history is the beginning of this member's, and
// holds all that the compaction has left, the sender sends only the records after it. Without an
// answer in time it sends everything. Errors: errAhead, kv.ErrCompacted, and from ctx.
func (s *Sender) findBase(ctx context.Context, to uint64, store *mvcc.Store, h *Header) error {
	limited, cancel := context.WithTimeout(ctx, s.o.OfferTimeout)
	defer cancel()
	a, err := s.askOffer(limited, to, h)
	switch {
	case err == nil && a.Ahead:
		return errAhead
	case err == nil && (!a.Have || a.Revision > h.Revision || a.Revision < max(h.Compact, 2)):
		return nil
	}
	var hash uint32
	if err == nil {
		hash, err = store.HashAt(limited, a.Revision, h.Compact)
		err = s.o.NoteDamage(err)
	}
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, kv.ErrCompacted):
		return err
	case err != nil:
		s.o.Logger.Warn("cannot find out what a member lacks: it is sent everything",
			memberAttr(to), slog.Any("error", err))
		return nil
	}
	if hash != a.Hash {
		s.o.Logger.Warn("a member's history differs: it is sent everything", memberAttr(to),
			slog.Int64("revision", a.Revision),
			slog.Uint64("hash", uint64(hash)), slog.Uint64("remote-hash", uint64(a.Hash)))
		return nil
	}
	h.Incremental, h.Base, h.Hash = true, a.Revision, a.Hash
	return nil
}

func (s *Sender) askOffer(ctx context.Context, to uint64, h *Header) (Answer, error) {
	b, err := s.o.Network.Call(ctx, to, calls.SnapshotOffer,
		Offer{Index: h.At.Index, Compact: h.Compact}.Encode())
	if err != nil {
		return Answer{}, fmt.Errorf("transfer: asking what it has: %w", err)
	}
	return DecodeAnswer(b)
}

// pacer limits the rate of one transfer, ends it when the member no longer leads, and logs its
// progress. The goroutine that reads the stream owns it.
type pacer struct {
	s             *Sender
	ctx           context.Context
	log           *slog.Logger
	term          uint64
	began, logged time.Time
	bytes         int64
}

// pace counts n bytes that are about to be sent, and waits as long as the rate requires.
func (p *pacer) pace(n int) error {
	if st := p.s.raft.Status(); st.Lead != p.s.o.MemberID || st.Term != p.term {
		return errNotLeader
	}
	p.bytes += int64(n)
	p.s.bytes.Add(uint64(n))
	if now := time.Now(); now.Sub(p.logged) >= progressInterval {
		p.logged = now
		p.log.Info("sending a snapshot: progress", slog.Int64("bytes", p.bytes),
			slog.Duration("for", now.Sub(p.began)))
	}
	if rate := p.s.o.BytesPerSecond; rate > 0 {
		due := p.began.Add(time.Duration(float64(p.bytes) / float64(rate) * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			timer := time.NewTimer(wait)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-p.ctx.Done():
			}
		}
	}
	return p.ctx.Err()
}
