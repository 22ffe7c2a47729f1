package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/bucket"
	"vigil/internal/debugpage"
	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
)

// session is the time in which this member archives without interruption.
type session struct {
	a      *Archiver
	b      bucket.Bucket
	id     *archive.Identity
	sealer *archive.Sealer

	// cover holds the indexes that the archive has or that are lost. Owned by the sending loop.
	cover coverage
	// done holds the indexes that this session has sent, given up, or found in a later list. They
	// are merged into the list that replaces cover. Owned by the sending loop.
	done coverage
	// partial: cover lacks the list of objects below the archived index. makeBases reads that list
	// first.
	partial bool
	// settled is an index: entries missing up to it were archived and later pruned, or an earlier
	// sender lost and reported them. Owned by the sending loop.
	settled uint64
	// missedAt is the number of orders at the time when this member found missing entries that its
	// log no longer has, 0 for none.
	missedAt uint64

	// wake has room for one: a base may be due.
	wake chan struct{}
	mu   struct {
		sync.Mutex
		// base is the newest base, nil without one. since is the time from which it is the newest.
		base   *archive.Base
		baseAt time.Time
		// others is the index of the newest base in the bucket when this session last wanted to
		// make one.
		others uint64
		// need is an index: a base at or after it is needed at once.
		need uint64
		// bytes is the size of the log objects after the base.
		bytes int64
		// cost is the duration of the last base.
		cost time.Duration
		// sent is the index up to which the archive needs no log object. whole is the same up to
		// the first gap without a base after it.
		sent, whole uint64
		// fullList is the complete list, until the sending loop merges it.
		fullList *inventory
	}
}

// session archives until this member is no longer appointed, ctx ends, or an error occurs that a
// repeated put cannot repair. began reports whether it began to send.
func (a *Archiver) session(ctx context.Context) (began bool, err error) {
	b, id, checked, err := a.connect(ctx)
	if err != nil {
		return false, err
	}
	s := &session{a: a, b: b, id: id, wake: make(chan struct{}, 1)}
	if s.sealer, err = archive.NewSealer(*id, a.o.Recipients); err != nil {
		return false, err
	}
	if err := s.readArchive(ctx, checked); err != nil {
		return false, err
	}
	a.noteSuccess(sending)
	a.setSession(true)
	defer a.setSession(false)
	ctx, cancel := context.WithCancel(ctx)
	var bases sync.WaitGroup
	bases.Go(func() { s.makeBases(ctx) })
	defer bases.Wait()
	defer cancel()
	for a.appointed() {
		begun := time.Now()
		more, err := s.sendNext(ctx)
		if err != nil {
			return true, err
		}
		if !more && !wait(ctx, a.o.Interval-time.Since(begun)) {
			return true, ctx.Err()
		}
	}
	return true, errNotAppointed
}

func (a *Archiver) setSession(on bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.session = on
}

// readArchive lists the archive and checks that it contains the history of this cluster. Nothing is
// sent until it returns, so it makes independent requests at once. checked returns an error unless
// the identity is still the archive's.
func (s *session) readArchive(ctx context.Context, checked func() error) error {
	// A list can have thousands of names. So if the cluster knows the archived index, the sender
	// lists only the objects after it, and begins to send.
	s.a.mu.Lock()
	archived := s.a.mu.archived.index
	if s.a.mu.archivedIn != s.id.Archive {
		archived = 0 // of another archive
	}
	s.a.mu.Unlock()
	n, err := s.listNames(ctx, archived)
	if err := errors.Join(checked(), err); err != nil {
		return err
	}
	var newest *archive.Header
	last := n.newest
	read := startAsync(func() (err error) { newest, err = s.newestHeader(ctx, last); return err })
	inv, err := s.readInventory(ctx, n, archived)
	if err := errors.Join(read(), err); err != nil {
		return err
	}
	if len(n.newest) > 0 && newest == nil {
		return errors.New("none of its newest log objects can be read, so that it may contain " +
			"another cluster's history: see vigilctl archive verify, and remove damaged objects")
	}
	if err := s.judge(ctx, inv.base, newest); err != nil {
		return err
	}
	if err := s.a.noteBegun(ctx, s.id); err != nil {
		return err
	}
	s.a.acceptHistory()
	s.cover = inv.cover
	s.partial = archived > 0 && inv.base != nil
	s.settled = archived
	if archived == 0 && inv.base != nil {
		// No member knows more than the archive, as after a start of all.
		s.settled = inv.base.Index
	}
	s.mu.base, s.mu.bytes = inv.base, inv.bytes
	if inv.base == nil {
		// The first base will contain everything applied so far.
		m := s.a.markNow()
		s.cover.add(1, m.index)
		s.mu.need = m.index
	} else {
		// The clock of another member may be ahead.
		s.mu.baseAt = time.Now().Add(-max(0, time.Since(inv.base.Time)))
		s.a.setBase(inv.base)
	}
	s.a.o.Logger.Info("this member archives now", slog.String("archive", s.a.o.Address),
		slog.Uint64("last-index", inv.cover.end()))
	return nil
}

// listAll completes the list that readArchive read in part. It returns false if ctx has ended.
func (s *session) listAll(ctx context.Context) bool {
	for b := (backoff{}); ; {
		s.mu.Lock()
		before := s.mu.bytes
		s.mu.Unlock()
		inv, err := s.list(ctx, 0)
		if err == nil {
			s.mu.Lock()
			s.mu.fullList = inv
			s.mu.bytes += inv.bytes - before
			s.mu.Unlock()
			s.a.noteSuccess(basing)
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		s.a.noteFailure(basing, "listing the archive", err)
		if !wait(ctx, b.next()) {
			return false
		}
	}
}

// useFullList replaces the partial list with the complete one once that is read.
func (s *session) useFullList() {
	s.mu.Lock()
	full := s.mu.fullList
	s.mu.fullList = nil
	s.mu.Unlock()
	if full == nil {
		return
	}
	s.cover = full.cover
	for _, d := range s.done.spans {
		s.cover.add(d.first, d.last)
	}
}

// nextOrder waits for an order that is newer than the call and appoints this member.
func (s *session) nextOrder(ctx context.Context) (order, error) {
	a := s.a
	a.mu.Lock()
	from := a.mu.orders
	a.mu.Unlock()
	for {
		a.mu.Lock()
		o, n, appointed := a.mu.order, a.mu.orders, time.Now().Before(a.mu.until)
		a.mu.Unlock()
		switch {
		case !appointed:
			return o, errNotAppointed
		case n > from:
			return o, nil
		}
		select {
		case <-a.changed:
		case <-time.After(orderInterval):
		case <-ctx.Done():
			return o, ctx.Err()
		}
	}
}

// refuse notes that the archive does not contain this cluster's history, and returns the error.
func (s *session) refuse(err error) error {
	err = fmt.Errorf("%w: %w; use another bucket or prefix: "+
		"this cluster does not continue its history", errRefused, err)
	s.a.refuse(err, time.Now())
	return err
}

// errReplaced ends a session. The next one refuses the archive.
var errReplaced = errors.New("this cluster has begun another incarnation")

// ordersToTrust is the number of orders after which one was certainly made after an event: the
// first may already have been on the way, and the leader may have begun the second before the
// event.
const ordersToTrust = 3

// origin names the history of an object: the object contains the entries of its claim's history up
// to last.
type origin struct {
	name  string
	last  uint64
	claim archive.Claim
}

// judge waits until this member knows whether the archive contains this cluster's history: whether
// both have the same entries up to the ends of the newest base and of the newest log object.
// Otherwise it refuses the archive. The outcome depends only on the objects and on the claims in
// the store, not on how far the log grows or is truncated. The caller has listed the archive
// before.
func (s *session) judge(ctx context.Context, base *archive.Base, newest *archive.Header) error {
	var objects []origin
	if base != nil {
		objects = append(objects,
			origin{fmt.Sprintf("the state after entry %d", base.Index), base.Index, base.Claim})
	}
	if newest != nil {
		objects = append(objects,
			origin{fmt.Sprintf("the entries %d to %d", newest.First, newest.Last),
				newest.Last, newest.Claim})
	}
	for _, o := range objects {
		if err := s.judgeObject(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) judgeObject(ctx context.Context, o origin) error {
	for n := 0; ; n++ {
		own, applied := s.a.o.Source.Lineage()
		switch own.Judge(lineage.Mark{Term: uint64(o.claim.Term), ID: lineage.ID(o.claim.ID)},
			o.last, applied) {
		case lineage.Same:
			return nil
		case lineage.Foreign:
			return s.refuse(fmt.Errorf("it has %s, by a leader of term %d (%s), and "+
				"this cluster had another leader in that term, or left it before",
				o.name, o.claim.Term, o.claim.ID))
		}
		order, err := s.nextOrder(ctx)
		if err != nil {
			return err
		}
		if uint64(o.claim.Term) > order.term && n+1 >= ordersToTrust {
			return s.refuse(fmt.Errorf("it has %s, by a leader of term %d, and this cluster is "+
				"in term %d",
				o.name, o.claim.Term, order.term))
		}
	}
}

// newestClaim returns the newest claim that this member has applied.
func (a *Archiver) newestClaim() archive.Claim {
	s, _ := a.o.Source.Lineage()
	m := s.Newest()
	return archive.Claim{Term: archive.Hex64(m.Term), ID: archive.ID(m.ID)}
}

// claimed reports whether entries of a term may be sent: its leader or a later one has claimed its
// term.
func (a *Archiver) claimed(term uint64) bool { return uint64(a.newestClaim().Term) >= term }

// ordersBeforeLoss is the number of further orders, four seconds' worth, that must appoint this
// member before it gives up entries that its log no longer has. In this time the leader appoints a
// member whose log has them, if there is one.
const ordersBeforeLoss = uint64(4 * time.Second / orderInterval)

// sendNext sends one log object if there are entries to send. more reports whether more entries
// wait.
func (s *session) sendNext(ctx context.Context) (more bool, err error) {
	src := s.a.o.Source
	s.useFullList()
	m := s.a.markNow()
	first := src.FirstIndex()
	if err := s.giveUp(ctx, first, m.index); err != nil {
		return false, err
	}
	from, to := s.cover.next(first)
	missing, _ := s.cover.next(1)
	s.noteSent(missing - 1)
	if from > m.index {
		return false, nil
	}
	claim := s.a.newestClaim()
	ents, err := src.Entries(from, min(to, m.index), uint64(s.a.o.logBytes))
	switch {
	case errors.Is(err, raft.ErrCompacted) || errors.Is(err, raft.ErrUnavailable):
		// The log was shortened, or a snapshot has replaced it.
		return false, nil
	case err != nil:
		return false, err
	case len(ents) == 0 || ents[0].GetIndex() != from:
		return false, fmt.Errorf("archiver: the raft log gives no entry %d", from)
	}
	// While no leader has claimed its term, an entry cannot be distinguished from one of another
	// history.
	if n := slices.IndexFunc(ents,
		func(e *raftpb.Entry) bool { return e.GetTerm() > uint64(claim.Term) }); n >= 0 {
		if ents = ents[:n]; n == 0 {
			return false, nil
		}
	}
	object, err := s.sealEntries(ents, m, claim)
	if err != nil {
		return false, err
	}
	if err := s.put(ctx, sending, object.Name, object.Data); err != nil {
		return false, err
	}
	s.a.counters.entries.Add(object.Header.Items)
	s.a.counters.contents.Add(uint64(object.Header.Content))
	s.cover.add(object.Header.First, object.Header.Last)
	s.done.add(object.Header.First, object.Header.Last)
	missing, _ = s.cover.next(1)
	s.mu.Lock()
	s.mu.bytes += int64(len(object.Data))
	s.mu.Unlock()
	s.noteSent(missing - 1)
	return object.Header.Last < m.index, nil
}

// sealEntries makes a log object of the first entries. It ends with a moment whose revision is
// known, if there is one.
func (s *session) sealEntries(ents []*raftpb.Entry, now mark,
	claim archive.Claim) (*archive.Sealed, error) {
	a := s.a
	first, last := ents[0].GetIndex(), ents[len(ents)-1].GetIndex()
	info := archive.LogInfo{Sender: a.o.MemberID, After: now.revision, FirstTime: now.at,
		LastTime: now.at, Claim: claim}
	s.mu.Lock()
	if b := s.mu.base; b != nil && b.Index < first {
		info.Before = b.Revision
	}
	s.mu.Unlock()
	a.mu.Lock()
	if m, ok := a.mu.marks.below(last); ok && m.index >= first {
		last = m.index
	}
	if m, ok := a.mu.marks.below(first - 1); ok {
		info.Before = max(info.Before, m.revision)
	}
	if m, ok := a.mu.marks.above(first); ok {
		info.FirstTime = m.at
	}
	if m, ok := a.mu.marks.above(last); ok {
		info.After, info.LastTime = m.revision, m.at
	}
	a.mu.Unlock()
	info.After = max(info.After, info.Before)
	w := s.sealer.NewLog()
	for _, e := range ents[:last-first+1] {
		if err := w.Add(e); err != nil {
			return nil, err
		}
	}
	return w.Seal(info)
}

// giveUp notes the indexes missing below the first index of the log as lost. It does so only after
// the leader has had time to appoint another member, and if a new list lacks them too: others may
// have sent them since this session began.
func (s *session) giveUp(ctx context.Context, first, applied uint64) error {
	holes := s.cover.holes(1, min(first-1, applied))
	s.a.mu.Lock()
	orders := s.a.mu.orders
	s.a.mu.Unlock()
	switch {
	case len(holes) == 0:
		s.missedAt = 0
		return nil
	case s.missedAt == 0:
		s.missedAt = orders
	}
	if orders < s.missedAt+ordersBeforeLoss {
		return nil
	}
	inv, err := s.list(ctx, 0)
	if err != nil {
		return err
	}
	for _, have := range inv.cover.spans {
		s.cover.add(have.first, have.last)
		s.done.add(have.first, have.last)
	}
	holes = s.cover.holes(1, min(first-1, applied))
	s.missedAt = 0
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range holes {
		s.cover.add(h.first, h.last)
		s.done.add(h.first, h.last)
		bridged := s.mu.base != nil && s.mu.base.Index >= h.last
		switch {
		case !bridged:
			s.mu.need = max(s.mu.need, h.last)
		case h.last <= s.settled:
			s.a.o.Logger.Info("the archive has no entries between two of its base states: "+
				"they were "+
				"pruned, or are a gap that was reported before",
				slog.String("archive", s.a.o.Address), slog.Uint64("first-index", h.first),
				slog.Uint64("last-index", h.last))
			continue
		}
		s.a.noteGap(debugpage.ArchiveGap{First: h.first, Last: h.last, Time: time.Now()})
	}
	s.wakeBases()
	return nil
}

func (a *Archiver) noteGap(g debugpage.ArchiveGap) {
	a.counters.gaps.Add(1)
	a.o.Logger.Error("the archive has a gap: states between these entries cannot be restored. "+
		"The raft log dropped them before they were archived; "+
		"--archive-max-lag-bytes limits how much it keeps",
		slog.String("archive", a.o.Address), slog.Uint64("first-index", g.First),
		slog.Uint64("last-index", g.Last))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.gap = g
}

// noteSent notes that the archive needs no log object up to an index. The entries count as archived
// only when the archive has a base from which they apply without a gap.
func (s *session) noteSent(index uint64) {
	s.mu.Lock()
	s.mu.sent = index
	switch {
	case s.mu.base == nil:
		index = 0
	case s.mu.need > s.mu.base.Index:
		index = s.mu.whole
	default:
		s.mu.whole = index
	}
	s.mu.Unlock()
	s.a.mu.Lock()
	defer s.a.mu.Unlock()
	s.a.noteArchivedLocked(s.id.Archive, index)
}

// put writes an object. It repeats the attempt until the object is there, this member is no longer
// appointed, or ctx ends.
func (s *session) put(ctx context.Context, in activity, name string, data []byte) error {
	for b := (backoff{}); s.a.appointed(); {
		err := s.a.guard.do(ctx, s.a.guard.limit(len(data)), func(ctx context.Context) error {
			// A process that was suspended, or waited for other operations, has an old view of the
			// archive.
			switch {
			case !s.a.appointed():
				return errNotAppointed
			case s.a.incarnation() != s.id.Incarnation:
				return errReplaced
			}
			return s.b.Put(ctx, name, data)
		})
		switch {
		case err == nil || errors.Is(err, bucket.ErrExists):
			// The name comes from the content, or is random: an existing object is this one, from
			// an attempt that got no answer.
			s.a.counters.objects.Add(1)
			s.a.counters.bytes.Add(uint64(len(data)))
			if in == sending {
				s.a.noteSuccess(sending) // a base is more than this object
			}
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errNotAppointed), errors.Is(err, errReplaced):
			return err
		}
		s.a.noteFailure(in, "writing "+name, err)
		if !wait(ctx, b.next()) {
			return ctx.Err()
		}
	}
	return errNotAppointed
}

func hexText(id uint64) string { return strconv.FormatUint(id, 16) }
