package archiver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/kv"
	"vigil/internal/store/archive"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc"
)

const (
	// lookForBase is the time between two checks whether a base is due.
	lookForBase = time.Second
	// baseShare is the smallest ratio of the time between two bases to the duration of one.
	baseShare = 20
	// baseAttempts bounds how often a base starts again after a concurrent compaction.
	baseAttempts = 5
	// littleWritten is a size of log objects: less than that counts as nothing written if the
	// revision has not changed.
	littleWritten = 1 << 20
	// baseGiveUp is how long a base waits for a failing bucket, on top of the time for the bytes of
	// a part. While it waits it holds files of the history.
	baseGiveUp = 5 * time.Minute
)

// wakeBases makes the base loop check at once.
func (s *session) wakeBases() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// makeBases makes bases when they are due.
func (s *session) makeBases(ctx context.Context) {
	ctx = forBases(ctx)
	if s.partial && !s.listAll(ctx) {
		return
	}
	b := backoff{}
	for {
		if s.baseDue(time.Now()) {
			s.mu.Lock()
			first := s.mu.base == nil
			s.mu.Unlock()
			err := s.makeBase(ctx)
			switch {
			case err == nil:
				b = backoff{}
				s.a.noteSuccess(basing)
				// Another member may have written a first base since: the archive needs the entries
				// from that one on too.
				if first && !s.listAll(ctx) {
					return
				}
			case ctx.Err() != nil || errors.Is(err, errNotAppointed):
				return
			case errors.Is(err, errBaseBefore):
			default:
				s.a.noteFailure(basing, "making a base", err)
				if !wait(ctx, b.next()) {
					return
				}
			}
		}
		select {
		case <-s.wake:
		case <-time.After(lookForBase):
		case <-ctx.Done():
			return
		}
	}
}

// baseDue reports whether to make a base now.
func (s *session) baseDue(now time.Time) bool {
	at, revision := s.a.o.Source.Position()
	claims, _ := s.a.o.Source.Lineage()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.a.claimed(at.Term):
		return false
	case s.mu.base == nil || s.mu.need > s.mu.base.Index:
		return at.Index >= s.mu.need
	case s.mu.sent < max(s.mu.base.Index, s.mu.others):
		return false // see basesLookedAt
	case claims.Fading(uint64(s.mu.base.Claim.Term)):
		// Even if nothing was written: the claim of its newest base identifies the archive's
		// history.
		return true
	}
	age := now.Sub(s.mu.baseAt)
	written := revision > s.mu.base.Revision || s.mu.bytes >= littleWritten
	return written && age >= baseShare*s.mu.cost &&
		(age >= s.a.o.BaseInterval || s.mu.bytes >= s.a.o.BaseBytes)
}

// errBaseBefore: the bucket has a base of another sender, or one that this sender did not know it
// had finished, and the archive lacks entries up to it.
var errBaseBefore = errors.New("a base that was made before comes first")

// checkFollows returns errBaseBefore unless the archive has all entries up to every base in the
// bucket, apart from entries that nobody can send any more.
func (s *session) checkFollows(ctx context.Context) error {
	newest := uint64(0)
	err := s.each(ctx, archive.BasePrefix, "", func(o bucket.Object) {
		if index, _, ok := archive.ParseBaseName(o.Key); ok {
			newest = max(newest, index)
		}
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.others = newest
	if s.mu.base == nil || s.mu.need > s.mu.base.Index || s.mu.sent >= newest {
		return nil
	}
	return errBaseBefore
}

// makeBase makes a base of the present state.
func (s *session) makeBase(ctx context.Context) error {
	began := time.Now()
	s.mu.Lock()
	before := s.mu.base
	s.mu.Unlock()
	if err := s.checkFollows(ctx); err != nil {
		return err
	}
	var base *archive.Base
	for attempt := 1; ; attempt++ {
		var err error
		base, err = s.writeBase(ctx, before)
		if err == nil {
			break
		}
		// After a concurrent compaction the export starts again; after an installed snapshot it
		// needs the new store.
		if attempt == baseAttempts || !errors.Is(err, kv.ErrCompacted) &&
			!errors.Is(err, history.ErrClosed) {
			return err
		}
	}
	took := time.Since(began)
	s.mu.Lock()
	s.mu.base, s.mu.baseAt, s.mu.cost, s.mu.bytes = base, began, took, 0
	s.mu.Unlock()
	s.a.setBase(base)
	s.a.counters.bases.Add(1)
	s.a.o.Logger.Info("archived a base", slog.String("archive", s.a.o.Address),
		slog.Uint64("index", base.Index), slog.Int64("revision", base.Revision),
		slog.Int("parts", len(base.Parts)), slog.Duration("took", took))
	return nil
}

func (a *Archiver) setBase(b *archive.Base) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.base = b
}

// writeBase exports the state. It writes the records that no part of the previous base has, and
// then the manifest. The export reads the records twice, and the hash a third time.
func (s *session) writeBase(ctx context.Context, before *archive.Base) (*archive.Base, error) {
	base := archive.NewBase(s.id)
	base.Time, base.Sender = time.Now(), archive.Hex64(s.a.o.MemberID)
	var parts []archive.Part
	if before != nil {
		parts = before.PartsOf(archive.RecordsPart)
	}
	counts := make([]tally, len(parts)+1)
	if err := s.markUnreliable(ctx, parts, counts); err != nil {
		return nil, err
	}
	at := 0
	store := s.a.o.Source.Store()
	export, err := store.Export(ctx, func(rev kv.Rev, _ bool, data []byte) error {
		for at < len(parts) && rev.Main > parts[at].Through {
			at++
		}
		counts[at].items++
		counts[at].bytes += int64(len(data)) + 16
		return nil
	})
	if err != nil {
		return nil, err
	}
	defer export.Close()
	defer s.keepOffMemory(export)()
	if before != nil && (before.Revision > export.Revision || before.Index > export.Applied.Index) {
		return nil, fmt.Errorf("the state is at index %d and revision %d, behind the newest "+
			"base at index %d and revision %d", export.Applied.Index, export.Revision, before.Index,
			before.Revision)
	}
	// Read the lineage after exporting the state.
	if base.Claim = s.a.newestClaim(); uint64(base.Claim.Term) < export.Applied.Term {
		return nil, fmt.Errorf("the state has an entry of term %d, which its leader has not "+
			"claimed yet",
			export.Applied.Term)
	}
	base.Index, base.Term, base.Revision, base.Compact = export.Applied.Index, export.Applied.Term,
		export.Revision, export.Compact
	base.RevisionTime = export.RevisionTime
	if base.Hash, err = store.HashAt(ctx, base.Revision, base.Compact); err != nil {
		return nil, err
	}
	for _, m := range s.a.o.Source.Members().Members() {
		base.Members = append(base.Members,
			archive.Member{ID: archive.Hex64(m.ID), Name: m.Name, PeerURLs: m.PeerURLs,
				ClientURLs: m.ClientURLs, Learner: m.Learner})
	}
	w := &baseWriter{s: s, ctx: ctx, base: &base,
		pieces: planRecords(parts, counts, base.Revision, s.a.o.partBytes)}
	if err := w.writeRecords(export); err != nil {
		return nil, err
	}
	if err := w.writeMeta(export.Meta); err != nil {
		return nil, err
	}
	if err := s.checkFollows(ctx); err != nil { // others may have been faster
		return nil, err
	}
	return s.putManifest(ctx, &base)
}

// markUnreliable marks the parts that a new base must not reuse: parts that are missing in the
// bucket, and parts older than FullInterval by the bucket's clock.
func (s *session) markUnreliable(ctx context.Context, parts []archive.Part, counts []tally) error {
	if len(parts) == 0 {
		return nil
	}
	found := make(map[string]bucket.Object, len(parts))
	for i := range parts {
		found[parts[i].Name] = bucket.Object{Size: -1}
	}
	var newest time.Time
	err := s.each(ctx, archive.PartPrefix, "", func(o bucket.Object) {
		if o.Modified.After(newest) {
			newest = o.Modified
		}
		if _, ok := found[o.Key]; ok {
			found[o.Key] = o
		}
	})
	if err != nil {
		return err
	}
	for i := range parts {
		p := &parts[i]
		o := found[p.Name]
		counts[i].again = o.Size != p.Size || newest.Sub(o.Modified) >= s.a.o.FullInterval
		if o.Size != p.Size {
			s.a.o.Logger.Error("a part of the archive is lost: the next base writes its "+
				"records again",
				slog.String("archive", s.a.o.Address),
				slog.String("part", p.Name), slog.Int64("size", p.Size),
				slog.Int64("found-size", o.Size))
		}
	}
	return nil
}

// keepOffMemory keeps the export from holding the memory of segments that are sealed while it runs.
// The caller calls stop at the end.
func (s *session) keepOffMemory(e *mvcc.Export) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for e.ReleaseMemory() {
			select {
			case <-tick.C:
			case <-done:
				return
			}
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// putManifest writes a manifest and returns it. If another sender has written one for the same
// index, it returns that one.
func (s *session) putManifest(ctx context.Context, base *archive.Base) (*archive.Base, error) {
	data, err := base.Encode()
	if err != nil {
		return nil, err
	}
	if err := s.put(ctx, basing, base.Name(), data); err != nil {
		return nil, err
	}
	// The name does not depend on the content: the object in the bucket counts.
	there, err := s.readBase(ctx, base.Name(), int64(len(data)))
	if err == nil && there == nil {
		err = fmt.Errorf("%s was written and cannot be read", base.Name())
	}
	return there, err
}

// baseWriter writes the parts of a base.
type baseWriter struct {
	s      *session
	ctx    context.Context
	base   *archive.Base
	pieces []piece

	live  []archive.Part
	lives *archive.LiveWriter
}

// needsLive reports whether parts of the previous base may contain records that no longer count.
func (w *baseWriter) needsLive() bool {
	for _, p := range w.pieces {
		if p.keep != nil && p.after+1 < w.base.Compact {
			return true
		}
	}
	return false
}

// writeRecords walks over all records once. It writes the new pieces and the list of live records.
func (w *baseWriter) writeRecords(e *mvcc.Export) error {
	listing := w.needsLive()
	var records *archive.RecordsWriter
	var after, last int64 // of the present part, and the revision of the previous record
	i := -1
	// next goes to the next piece.
	next := func() error {
		if records != nil {
			if err := w.sealRecords(records, after, w.pieces[i].through); err != nil {
				return err
			}
		}
		records = nil
		if i++; i == len(w.pieces) {
			return nil
		}
		if p := &w.pieces[i]; p.keep != nil {
			w.base.Parts = append(w.base.Parts, *p.keep)
		} else {
			records, after, last = w.s.sealer.NewRecords(), p.after, p.after
		}
		return nil
	}
	for n := 0; e.Next(); n++ {
		if n%1024 == 0 && w.ctx.Err() != nil {
			return w.ctx.Err()
		}
		rev := e.Rev()
		for i < 0 || rev.Main > w.pieces[i].through {
			if err := next(); err != nil {
				return err
			}
		}
		if listing && rev.Main < w.base.Compact {
			if err := w.addLive(rev); err != nil {
				return err
			}
		}
		if records == nil {
			continue
		}
		if records.Size() >= w.s.a.o.partBytes && rev.Main > last {
			// A part contains all records of a revision or none.
			if err := w.sealRecords(records, after, last); err != nil {
				return err
			}
			records, after = w.s.sealer.NewRecords(), last
		}
		if err := records.Add(e.Stamp(), e.Tombstone(), e.Data()); err != nil {
			return err
		}
		last = rev.Main
	}
	if err := e.Err(); err != nil {
		return err
	}
	for i < len(w.pieces) {
		if err := next(); err != nil {
			return err
		}
	}
	if err := w.sealLive(); err != nil {
		return err
	}
	if listing && len(w.live) == 0 {
		// An empty list says that nothing below the compact revision counts.
		w.lives = w.s.sealer.NewLive()
		if err := w.sealLive(); err != nil {
			return err
		}
	}
	w.base.Parts = append(w.base.Parts, w.live...)
	return nil
}

func (w *baseWriter) sealRecords(r *archive.RecordsWriter, after, through int64) error {
	part, object, err := r.Seal(after, through)
	if err != nil {
		return err
	}
	w.base.Parts = append(w.base.Parts, part)
	return w.putPart(object)
}

func (w *baseWriter) addLive(rev kv.Rev) error {
	if w.lives != nil && w.lives.Size() >= w.s.a.o.partBytes {
		if err := w.sealLive(); err != nil {
			return err
		}
	}
	if w.lives == nil {
		w.lives = w.s.sealer.NewLive()
	}
	return w.lives.Add(rev)
}

func (w *baseWriter) sealLive() error {
	if w.lives == nil {
		return nil
	}
	part, object, err := w.lives.Seal(w.base.Compact)
	w.lives = nil
	if err != nil {
		return err
	}
	w.live = append(w.live, part)
	return w.putPart(object)
}

func (w *baseWriter) writeMeta(meta []history.Meta) error {
	m := w.s.sealer.NewMeta()
	for i := range meta {
		if m.Size() >= w.s.a.o.partBytes {
			if err := w.sealMeta(m); err != nil {
				return err
			}
			m = w.s.sealer.NewMeta()
		}
		if err := m.Add(&meta[i]); err != nil {
			return err
		}
	}
	return w.sealMeta(m)
}

func (w *baseWriter) sealMeta(m *archive.MetaWriter) error {
	part, object, err := m.Seal()
	if err != nil {
		return err
	}
	w.base.Parts = append(w.base.Parts, part)
	return w.putPart(object)
}

// putPart writes a part. It gives up after some time, because the export holds files.
func (w *baseWriter) putPart(object *archive.Sealed) error {
	limit := baseGiveUp + bytesTime(len(object.Data))
	ctx, cancel := context.WithTimeout(w.ctx, limit)
	defer cancel()
	err := w.s.put(ctx, basing, object.Name, object.Data)
	if err != nil && w.ctx.Err() == nil && ctx.Err() != nil {
		return fmt.Errorf("%w: part %s was not written within %v", bucket.ErrUnavailable,
			object.Name, limit)
	}
	return err
}
