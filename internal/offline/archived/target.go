package archived

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/offline/restore"
	"vigil/internal/state/fsm"
	"vigil/internal/store/archive"
	"vigil/internal/store/mvcc"
)

// Target is the state to restore: one of its fields is set, or none for the newest state.
type Target struct {
	Index    uint64
	Revision int64
	Time     time.Time
}

func (t Target) String() string {
	switch {
	case t.Index > 0:
		return fmt.Sprintf("index %d", t.Index)
	case t.Revision > 0:
		return fmt.Sprintf("revision %d", t.Revision)
	case !t.Time.IsZero():
		return "the state at " + t.Time.UTC().Format(time.RFC3339Nano)
	}
	return "the newest state"
}

// Result describes the restored state.
type Result struct {
	// Base is the name of the manifest that was used.
	Base string
	// Index and Revision are the index and revision of the restored state, before a new cluster
	// begins with it.
	Index    uint64
	Revision int64
	// Missing describes the entries of the archive that the restored state lacks, if the target was
	// the newest state.
	Missing []string
	Damages []Damage
}

// Restore builds a data directory from the state of a target. It does not use Source and State of
// the options. It leaves out objects that turn out to be damaged if others have the same content.
func (a *Archive) Restore(ctx context.Context, t Target, o restore.Options) (restore.Summary,
	Result, error) {
	var sum restore.Summary
	b, err := a.attempt(ctx, t, o.Progress, func(b *build) (err error) {
		o.State = b
		sum, err = restore.Run(ctx, o)
		return err
	})
	res := Result{Damages: a.Damages()}
	if err != nil {
		return sum, res, err
	}
	res.complete(a, t, b, sum.Index)
	return sum, res, nil
}

// complete completes the result of a build that has reached an index.
func (r *Result) complete(a *Archive, t Target, b *build, index uint64) {
	r.Base, r.Index, r.Revision = b.base.Object.Key, index, b.revision
	if t == (Target{}) {
		r.Missing = a.missing(b.end)
	}
}

// attempt plans the build of a target and runs it. It repeats that as long as further objects turn
// out to be damaged.
func (a *Archive) attempt(ctx context.Context, t Target, progress func(string, int64, int64),
	run func(*build) error) (*build, error) {
	for {
		known := len(a.damaged)
		b, err := a.planRestore(ctx, t)
		if err == nil {
			b.target, b.progress = t.String(), progress
			err = run(b)
		}
		var damage *damageError
		switch {
		case err == nil:
			return b, nil
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &damage) && len(a.damaged) > known:
			continue
		}
		return nil, a.explain(t, err)
	}
}

// explain adds the damage, and the states that can be restored, to an error.
func (a *Archive) explain(t Target, err error) error {
	var reach *reachError
	if !errors.As(err, &reach) {
		return fmt.Errorf("%s: %w", a.where, err)
	}
	missing := a.missing(reach.index)
	if len(missing) == 0 {
		return fmt.Errorf("%s: %w", a.where, err)
	}
	return fmt.Errorf("%s: %w; %s", a.where, err, strings.Join(missing, "; "))
}

// missing describes the entries of the archive that the state at an index does not have.
func (a *Archive) missing(index uint64) []string {
	newest := a.newestIndex()
	if newest <= index {
		return nil
	}
	out := []string{fmt.Sprintf("entries %d to %d of the archive are not restored",
		index+1, newest)}
	gap := newest
	for _, o := range a.Logs {
		if reason, bad := a.damaged[o.Object.Key]; bad {
			if o.Last > index {
				out = append(out, o.Object.Key+" is damaged: "+reason)
			}
		} else if o.First > index+1 {
			gap = min(gap, o.First-1)
		}
	}
	for _, o := range a.Bases {
		if reason, bad := a.damaged[o.Object.Key]; bad && o.Index > index {
			out = append(out, o.Object.Key+" is damaged: "+reason)
		}
	}
	if len(out) == 1 {
		out = append(out, fmt.Sprintf("entries %d to %d are in no object", index+1, gap))
	}
	return out
}

// planRestore chooses the base and the log objects for a target.
func (a *Archive) planRestore(ctx context.Context, t Target) (*build, error) {
	if !t.Time.IsZero() {
		return a.planTime(ctx, t)
	}
	oldest := ""
	// exact is the first base with the revision of the target. Its state may differ from the state
	// right after the revision, because of later entries, so it is used only if no entries give the
	// state right after the revision.
	var exact *BaseObject
	for i := len(a.Bases) - 1; i >= 0; i-- {
		o := a.Bases[i]
		if t.Index > 0 && o.Index > t.Index {
			oldest = fmt.Sprintf("the first state is index %d", o.Index)
			continue
		}
		m, err := a.Manifest(ctx, o)
		var damage *damageError
		switch {
		case errors.As(err, &damage):
			continue
		case err != nil:
			return nil, err
		case t.Revision > 0 && m.Revision > t.Revision:
			oldest = fmt.Sprintf("the first state is revision %d", m.Revision)
			continue
		case a.damagedPart(m):
			continue
		case m.Revision == t.Revision:
			exact = o
			continue
		}
		if exact != nil {
			if _, reach := a.chainLogs(o.Index + 1); reach < exact.Index {
				break
			}
		}
		end := a.newestIndex()
		if t.Index > 0 {
			end = t.Index
		}
		b, err := a.newBuild(ctx, o, end, t.Revision)
		if err == nil && b.end < t.Index {
			err = &reachError{target: t.String(), index: b.end}
		}
		return b, err
	}
	switch {
	case exact != nil:
		return a.newBuild(ctx, exact, exact.Index, t.Revision)
	case len(a.Bases) == 0:
		return nil, errors.New("there is no base state, so nothing can be restored yet")
	case oldest != "":
		return nil, fmt.Errorf("%s cannot be restored: %s", t, oldest)
	}
	return nil, fmt.Errorf("%s cannot be restored: all %d base states are damaged: %s", t,
		len(a.Bases), a.Damages()[0])
}

// damagedPart reports whether a base has a part that is known to be damaged or missing.
func (a *Archive) damagedPart(m *archive.Base) bool {
	for _, p := range m.Parts {
		if _, bad := a.damaged[p.Name]; bad {
			return true
		}
	}
	return false
}

// planTime finds the last entry that was made at or before a time.
func (a *Archive) planTime(ctx context.Context, t Target) (*build, error) {
	at := t.Time.UnixMilli()
	for i := len(a.Bases) - 1; i >= 0; i-- {
		o := a.Bases[i]
		m, err := a.Manifest(ctx, o)
		var damage *damageError
		switch {
		case errors.As(err, &damage):
			continue
		case err != nil:
			return nil, err
		case m.Time.UnixMilli() > at || m.RevisionTime > at || a.damagedPart(m):
			continue // the clock of the sender may have been behind
		}
		end, err := a.findTime(ctx, m, at)
		if err != nil {
			return nil, err
		}
		return a.newBuild(ctx, o, end, 0)
	}
	if len(a.Bases) == 0 {
		return a.planRestore(ctx, Target{})
	}
	for _, o := range a.Bases {
		if m, err := a.Manifest(ctx, o); err == nil {
			return nil, fmt.Errorf("%s cannot be restored: the first state is of %s", t,
				m.Time.Format(time.RFC3339Nano))
		}
	}
	return a.planRestore(ctx, Target{}) // its error: all are damaged
}

// findTime returns the index of the last entry after a base that was made at or before a time, or
// the index of the base if there is none. It reads until the clocks of leaders and senders have
// passed the time: a clock that was ahead may be corrected later.
func (a *Archive) findTime(ctx context.Context, m *archive.Base,
	at int64) (index uint64, err error) {
	logs, end := a.chainLogs(m.Index + 1)
	index, ends := m.Index, max(m.Time.UnixMilli(), m.RevisionTime)
	newest, seen := m.RevisionTime, m.Index
	errPassed := errors.New("passed")
	err = a.eachLog(ctx, logs, func(_ LogObject, o *archive.Object) error {
		if newest > at && o.Header.FirstTime > at {
			return errPassed
		}
		ends = max(ends, o.Header.LastTime)
		return a.noteContent(o.Name(), o.Entries(func(e *raftpb.Entry) error {
			if e.GetIndex() <= seen {
				return nil
			}
			seen = e.GetIndex()
			ms, err := timeOf(e)
			if err != nil || ms == 0 {
				return err
			}
			if newest = mvcc.NextTime(newest, ms); newest <= at {
				index = seen
			}
			return nil
		}))
	})
	if err != nil && !errors.Is(err, errPassed) {
		return 0, err
	}
	if ends = max(ends, newest); ends < at {
		what := fmt.Sprintf("%s is after the end of the archive, which is index %d at %s: restore the newest state, or wait until the archive has this time",
			time.UnixMilli(at).UTC().Format(time.RFC3339Nano), end,
			time.UnixMilli(ends).UTC().Format(time.RFC3339Nano))
		if missing := a.missing(end); len(missing) > 0 {
			what += "; " + strings.Join(missing, "; ")
		}
		return 0, errors.New(what)
	}
	return index, nil
}

// timeOf returns the time of the group in an entry, 0 if it has none.
func timeOf(e *raftpb.Entry) (int64, error) {
	if e.GetType() != raftpb.EntryNormal || len(e.GetData()) == 0 {
		return 0, nil
	}
	h, err := fsm.ParseHeader(e.GetData())
	if err != nil {
		return 0, fmt.Errorf("%w: entry %d: %w", archive.ErrDamaged, e.GetIndex(), err)
	}
	return h.Time, nil
}
