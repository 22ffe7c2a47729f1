package archived

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/offline/restore"
	"vigil/internal/store/archive"
	"vigil/internal/store/history"
)

// build is a state that is made of a base and log objects. It is a restore.State.
type build struct {
	a    *Archive
	ctx  context.Context
	base *BaseObject
	// logs are the log objects with the entries after the base.
	logs []LogObject
	// end is the last index that is applied; with until above 0 the state ends at this revision,
	// which must be reached.
	end   uint64
	until int64
	// target is the text of the target, for errors.
	target string
	// progress, if set, is called with the bytes that were read of all.
	progress func(what string, done, total int64)

	manifest    *archive.Base
	done, total int64
	// revision is the revision of the state that was built.
	revision int64
	// metas are the meta records of the base, once a verification has loaded them.
	metas []history.Meta
}

// newBuild returns the build of the state that a base and the entries after it give, up to an
// index.
func (a *Archive) newBuild(ctx context.Context, base *BaseObject, end uint64,
	until int64) (*build, error) {
	m, err := a.Manifest(ctx, base)
	if err != nil {
		return nil, err
	}
	b := &build{a: a, ctx: ctx, base: base, end: end, until: until, manifest: m}
	list, reach := a.chainLogs(base.Index + 1)
	for _, o := range list {
		if o.First > end {
			break
		}
		b.logs = append(b.logs, o)
		b.total += o.Object.Size
	}
	b.end = min(b.end, reach)
	if until > 0 && m.Revision >= until {
		b.logs, b.end = nil, base.Index
	}
	for _, p := range m.Parts {
		b.total += p.Size
	}
	return b, nil
}

// Identity implements restore.State.
func (b *build) Identity() []uint64 {
	id := b.a.Identity.Archive
	out := []uint64{binary.BigEndian.Uint64(id[:]), binary.BigEndian.Uint64(id[8:])}
	if b.until > b.manifest.Revision {
		return append(out, 1, uint64(b.until))
	}
	return append(out, 2, b.end)
}

// Size implements restore.State.
func (b *build) Size() (n int64) {
	for _, p := range b.manifest.Parts {
		n += p.Content
	}
	for _, o := range b.logs {
		n += o.Object.Size
	}
	return n
}

// Build implements restore.State.
func (b *build) Build(r *restore.Rebuild) error {
	if err := b.loadBase(r); err != nil {
		return err
	}
	reached := b.until > 0 && r.Revision() >= b.until
	if !reached {
		var err error
		if reached, err = b.replayLogs(r, b.logs, b.end); err != nil {
			return err
		}
	}
	b.revision = r.Revision()
	if b.until > 0 && !reached {
		return &reachError{target: b.target, index: r.Applied().Index, revision: r.Revision()}
	}
	return nil
}

// reachError: the archive ends before the target. The revision is 0 if it is not known.
type reachError struct {
	target   string
	index    uint64
	revision int64
}

func (e *reachError) Error() string {
	text := fmt.Sprintf("%s cannot be restored: the archive reaches index %d", e.target, e.index)
	if e.revision > 0 {
		text += fmt.Sprintf(", which is revision %d", e.revision)
	}
	return text
}

// loadBase adds the base state, and starts it.
func (b *build) loadBase(r *restore.Rebuild) error {
	live := newLiveSet(b)
	defer live.stop()
	err := b.a.eachPart(b.ctx, b.manifest, archive.RecordsPart, func(o *archive.Object) error {
		name := o.Name()
		err := o.Records(func(at history.Stamp, tombstone bool, data []byte) error {
			if live.used && at.Rev.Main < b.manifest.Compact {
				if counts, err := live.isCounted(at.Rev); err != nil || !counts {
					return err
				}
			}
			return r.Record(at, tombstone, data)
		})
		b.reportProgress(o)
		return b.a.noteContent(name, err)
	})
	if err != nil {
		return err
	}
	missing, err := live.hasRest()
	if err != nil {
		return err
	}
	if missing {
		return b.a.noteDamage(b.base.Object.Key,
			fmt.Errorf("%w: records that still count are in no part", archive.ErrDamaged))
	}
	err = b.a.eachPart(b.ctx, b.manifest, archive.MetaPart, func(o *archive.Object) error {
		err := o.Meta(r.Meta)
		b.reportProgress(o)
		return b.a.noteContent(o.Name(), err)
	})
	if err != nil {
		return err
	}
	err = r.Start(history.Applied{Term: b.manifest.Term, Index: b.manifest.Index})
	if errors.Is(err, kv.ErrCorrupt) {
		return b.a.noteDamage(b.base.Object.Key, err)
	}
	if err != nil {
		return err
	}
	if rev, compact := r.Store().Revision(),
		r.Store().CompactRevision(); rev != b.manifest.Revision || compact != b.manifest.Compact {
		return b.a.noteDamage(b.base.Object.Key,
			fmt.Errorf("%w: its parts have revision %d, compacted at %d; the manifest has %d and %d",
				archive.ErrDamaged, rev, compact, b.manifest.Revision, b.manifest.Compact))
	}
	return b.compareHash(r, "its parts have")
}

// compareHash compares the hash of a state with the hash in the manifest.
func (b *build) compareHash(r *restore.Rebuild, how string) error {
	hash, err := r.Store().HashAt(b.ctx, b.manifest.Revision, b.manifest.Compact)
	if err != nil {
		return err
	}
	if hash != b.manifest.Hash {
		return b.a.noteDamage(b.base.Object.Key,
			fmt.Errorf("%w: %s the hash %d at revision %d, the cluster had %d", archive.ErrDamaged,
				how, hash, b.manifest.Revision, b.manifest.Hash))
	}
	return nil
}

// liveSet yields the records below the compact revision that still count, in their order. It reads
// them together with the records, so that their number takes no memory.
type liveSet struct {
	used bool
	next func() (kv.Rev, error, bool)
	stop func()
	// rev is the expected record, if ahead is set. err is why there is none.
	rev   kv.Rev
	err   error
	ahead bool
}

func newLiveSet(b *build) *liveSet {
	l := &liveSet{used: len(b.manifest.PartsOf(archive.LivePart)) > 0}
	l.next, l.stop = iter.Pull2(b.liveRevs)
	return l
}

// peek reads the expected record. It returns false at the end.
func (l *liveSet) peek() (more bool, err error) {
	if !l.ahead {
		l.rev, l.err, l.ahead = l.next()
	}
	return l.ahead && l.err == nil, l.err
}

// isCounted reports whether a record counts. It is called in the order of the records. If a listed
// record is missing, no later one counts, and hasRest reports it.
func (l *liveSet) isCounted(rev kv.Rev) (bool, error) {
	more, err := l.peek()
	if !more || l.rev != rev {
		return false, err
	}
	l.ahead = false
	return true, nil
}

// hasRest reports whether a listed record is left.
func (l *liveSet) hasRest() (bool, error) { return l.peek() }

// liveRevs yields the records of the live parts, and at last an error if there was one.
func (b *build) liveRevs(yield func(kv.Rev, error) bool) {
	errEnough := errors.New("enough")
	last := kv.Rev{}
	err := b.a.eachPart(b.ctx, b.manifest, archive.LivePart, func(o *archive.Object) error {
		err := o.Live(func(rev kv.Rev) error {
			if !last.Less(rev) {
				return fmt.Errorf("%w: live parts are not in order", archive.ErrDamaged)
			}
			last = rev
			if !yield(rev, nil) {
				return errEnough
			}
			return nil
		})
		b.reportProgress(o)
		return b.a.noteContent(o.Name(), err)
	})
	if err != nil && !errors.Is(err, errEnough) {
		yield(kv.Rev{}, err)
	}
}

// replayLogs applies the entries of log objects up to an index, or to the revision of the build.
func (b *build) replayLogs(r *restore.Rebuild, logs []LogObject,
	end uint64) (reached bool, err error) {
	errReached := errors.New("reached")
	err = b.a.eachLog(b.ctx, logs, func(_ LogObject, o *archive.Object) error {
		// The applied entries show whether the object follows them. Entries of later terms are
		// compared with the objects after this one.
		at := r.Applied().Index
		if err := foreign(r.Lineage(), o.Header.Claim, min(at, o.Header.Last), at); err != nil {
			return b.a.noteContent(o.Name(), err)
		}
		err := o.Entries(func(e *raftpb.Entry) error {
			switch at := r.Applied(); {
			case e.GetIndex() == at.Index && e.GetTerm() != at.Term:
				// With equal terms all entries before are equal too.
				return fmt.Errorf("%w: entry %d has term %d, and term %d in an object before: they are of two histories",
					archive.ErrForeign, at.Index, e.GetTerm(), at.Term)
			case e.GetIndex() <= at.Index || e.GetIndex() > end:
				return nil
			}
			done, err := r.Apply(e, b.until)
			if err == nil && done {
				err = errReached
			}
			return err
		})
		b.reportProgress(o)
		if err != nil && !errors.Is(err, errReached) {
			return b.a.noteContent(o.Name(), err)
		}
		return err
	})
	if errors.Is(err, errReached) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, r.Commit()
}

// reportProgress reports that an object was used.
func (b *build) reportProgress(o *archive.Object) {
	b.done += o.Header.Body + archive.HeaderSize
	if b.progress != nil {
		b.progress("reading the archive", min(b.done, b.total), b.total)
	}
}
