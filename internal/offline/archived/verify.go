package archived

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/offline/restore"
	"vigil/internal/state/fsm"
	"vigil/internal/store/archive"
	"vigil/internal/store/history"
	"vigil/internal/vfs"
)

// VerifyOptions say how an archive is verified.
type VerifyOptions struct {
	FS vfs.FS
	// Dir is an empty directory for the states that are rebuilt.
	Dir string
	// Sample rebuilds only the newest base and the entries after it, and reads only every hundredth
	// of the other objects, at least 20.
	Sample bool
	// Progress, if set, is called with the current step, its bytes done and its total bytes.
	Progress func(what string, done, total int64)
}

// Verdict is the result of a verification.
type Verdict struct {
	// Objects and Bytes are how many objects were read.
	Objects int   `json:"objects"`
	Bytes   int64 `json:"bytes"`
	// Damages are objects that cannot be used, and manifests that describe another state than their
	// parts.
	Damages []Damage `json:"damages"`
	// Gaps are ranges of entries that no object has, between states of the archive: states in them
	// cannot be restored.
	Gaps []Gap `json:"gaps,omitempty"`
	// Unlisted is the number of parts that no manifest lists, Other the number of objects that do
	// not belong to an archive.
	Unlisted int `json:"unlistedParts"`
	Other    int `json:"otherObjects"`
	// Rebuilt is the number of states that were built and compared with the hash of their manifest,
	// Replayed how many of them were also reached by applying the entries after an earlier state.
	// Entries is the number of entries applied.
	Rebuilt  int   `json:"rebuiltStates"`
	Replayed int   `json:"replayedStates"`
	Entries  int64 `json:"entries"`
	// Index and Revision are the index and revision of the newest state. Without a key the revision
	// is not known, and the index follows from the names of the objects.
	Index    uint64 `json:"index"`
	Revision int64  `json:"revision"`
	// Newest is the newest index that an object has: states above Index cannot be restored.
	Newest uint64 `json:"newest"`
	// Encrypted is set if no key was given, so that only checksums were compared.
	Encrypted bool `json:"checksumsOnly,omitempty"`
}

// Gap is a range of entries.
type Gap struct {
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
}

// verifier is a verification in progress.
type verifier struct {
	a   *Archive
	ctx context.Context
	o   VerifyOptions
	v   Verdict

	done, total int64
	// locked is set if objects are encrypted and no key fits. unread is the number of these
	// objects, and unreadable the first one by name.
	locked     bool
	unread     int
	unreadable string
	terms      []termAt
	dirs       int
}

// Verify reads the objects of the archive and checks each, rebuilds its states, and compares their
// hashes with the manifests'. An error says that the verification is not complete.
func (a *Archive) Verify(ctx context.Context, o VerifyOptions) (*Verdict, error) {
	v := &verifier{a: a, ctx: ctx, o: o}
	err := v.verifyAll()
	v.v.Damages = a.Damages()
	v.v.Other = len(a.Other)
	v.v.Encrypted = v.locked
	v.v.Newest = a.newestIndex()
	return &v.v, err
}

func (v *verifier) verifyAll() error {
	listed := map[string]*archive.Part{}
	for _, o := range v.a.Bases {
		m, err := v.a.Manifest(v.ctx, o)
		v.count(o.Object.Size)
		if skip, err := v.skip(err); skip {
			continue
		} else if err != nil {
			return err
		}
		v.terms = append(v.terms, termAt{m.Index, m.Term, m.Claim, o.Object.Key})
		for i := range m.Parts {
			listed[m.Parts[i].Name] = &m.Parts[i]
			if _, ok := v.a.Parts[m.Parts[i].Name]; !ok {
				_ = v.a.noteDamage(m.Parts[i].Name,
					fmt.Errorf("it is missing, and %s lists it", o.Object.Key))
			}
		}
	}
	for name := range v.a.Parts {
		if listed[name] == nil {
			v.v.Unlisted++
		}
	}
	if err := v.readObjects(listed); err != nil {
		return err
	}
	check := v.rebuildStates
	if v.locked {
		check = v.findGaps
	}
	err := check()
	if err == nil && v.locked && v.a.reader.HasKeys() {
		err = fmt.Errorf("%s: %d of %d objects are %w, the first is %s: only checksums were compared; --identity needs the private keys of all recipients that the archive has had",
			v.a.where, v.unread, v.v.Objects, archive.ErrKey, v.unreadable)
	}
	// This comes last: it is not known which of two histories is right, so the states are the ones
	// that a restore gives.
	v.a.compareTerms(v.terms)
	return err
}

// findGaps finds gaps by the names of the objects, for an archive whose content cannot be read.
func (v *verifier) findGaps() error {
	if len(v.a.Bases) == 0 {
		return v.a.noBase()
	}
	end := uint64(0) // of the entries after the base before
	gap := func(until uint64) {
		if end > 0 && end < until {
			v.v.Gaps = append(v.v.Gaps, Gap{end + 1, until})
		}
	}
	for _, o := range v.a.Bases {
		m, err := v.a.Manifest(v.ctx, o)
		if skip, err := v.skip(err); skip {
			continue
		} else if err != nil {
			return err
		}
		if !v.a.complete(m) {
			continue
		}
		gap(o.Index)
		_, end = v.a.chainLogs(o.Index + 1)
	}
	gap(v.a.newestIndex())
	v.v.Index = end
	return nil
}

// skip reports whether an error is damage, which is noted.
func (v *verifier) skip(err error) (bool, error) {
	var damage *damageError
	return errors.As(err, &damage), err
}

func (v *verifier) count(size int64) {
	v.v.Objects++
	v.v.Bytes += size
}

// readObjects reads and decodes all parts and log objects, or a sample of them.
func (v *verifier) readObjects(listed map[string]*archive.Part) error {
	var list []wanted
	for name, o := range v.a.Parts {
		list = append(list, wanted{name, o.Size})
	}
	for _, o := range v.a.Logs {
		list = append(list, wanted{o.Object.Key, o.Object.Size})
	}
	slices.SortFunc(list, func(x, y wanted) int { return strings.Compare(x.name, y.name) })
	if v.o.Sample {
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		list = list[:min(len(list), max(20, len(list)/100))]
	}
	for _, w := range list {
		v.total += w.size
	}
	return v.a.fetchObjects(v.ctx, list, func(f fetched) error {
		if skip, err := v.skip(f.err); skip {
			return nil
		} else if err != nil {
			return err
		}
		v.count(int64(len(f.data)))
		v.step("reading objects", int64(len(f.data)))
		var o *archive.Object
		var err error
		if p := listed[f.name]; p != nil {
			o, err = v.a.reader.OpenPart(p, f.data)
		} else {
			o, err = v.a.reader.Open(f.name, f.data)
		}
		if err == nil {
			if h := &o.Header; h.Kind == archive.KindLog {
				v.terms = append(v.terms, termAt{h.First, h.FirstTerm, h.Claim, f.name},
					termAt{h.Last, h.LastTerm, h.Claim, f.name})
			}
			err = drain(o)
		}
		switch {
		case errors.Is(err, archive.ErrKey):
			v.locked = true
			if v.unread++; v.unreadable == "" || f.name < v.unreadable {
				v.unreadable = f.name
			}
		case err != nil && unusable(err):
			_ = v.a.noteDamage(f.name, err)
		case err != nil:
			return err
		}
		return nil
	})
}

// drain decodes the content of an object.
func drain(o *archive.Object) error {
	switch o.Header.Kind {
	case archive.KindRecords:
		return o.Records(func(history.Stamp, bool, []byte) error { return nil })
	case archive.KindLive:
		return o.Live(func(kv.Rev) error { return nil })
	case archive.KindMeta:
		return o.Meta(func(history.Meta) error { return nil })
	}
	return o.Entries(func(*raftpb.Entry) error { return nil })
}

func (v *verifier) step(what string, n int64) {
	v.done += n
	if v.o.Progress != nil {
		v.o.Progress(what, min(v.done, v.total), v.total)
	}
}

// rebuildStates rebuilds each base by its parts, or the newest one, and from each the states of
// later bases by entries.
func (v *verifier) rebuildStates() error {
	first := 0
	if v.o.Sample {
		first = max(len(v.a.Bases)-1, 0)
		for first > 0 && v.a.damaged[v.a.Bases[first].Object.Key] != "" {
			first--
		}
	}
	var walk *walker
	defer func() { walk.closeState() }()
	for _, o := range v.a.Bases[first:] {
		b, err := v.a.newBuild(v.ctx, o, o.Index, 0)
		if skip, err := v.skip(err); skip {
			continue
		} else if err != nil {
			return err
		}
		if v.a.damagedPart(b.manifest) {
			continue
		}
		own, err := v.rebuildBase(b)
		if skip, err := v.skip(err); skip {
			continue
		} else if err != nil {
			return err
		}
		if err := v.compareState(own.r, b, false); err != nil {
			own.closeState()
			return err
		}
		if walk, err = v.followEntries(walk, own, b); err != nil {
			return err
		}
	}
	return v.applyTail(walk)
}

// followEntries applies entries to the state of earlier bases up to a base, compares it, and
// returns the state to continue with.
func (v *verifier) followEntries(walk, own *walker, b *build) (*walker, error) {
	if walk == nil {
		return own, nil
	}
	reached, err := walk.applyUpTo(b.base.Index)
	if skip, err := v.skip(err); err != nil && !skip {
		own.closeState()
		return walk, err
	}
	if !reached {
		v.v.Gaps = append(v.v.Gaps, Gap{walk.r.Applied().Index + 1, b.base.Index})
		walk.closeState()
		return own, nil
	}
	if err := v.compareState(walk.r, b, true); err != nil {
		own.closeState()
		return walk, err
	}
	// Continue with the state of the parts, so that a difference is reported once.
	walk.closeState()
	return own, nil
}

// applyTail applies the entries after the newest base.
func (v *verifier) applyTail(walk *walker) error {
	if walk == nil {
		if len(v.a.Bases) == 0 {
			return v.a.noBase()
		}
		return nil
	}
	newest := v.a.newestIndex()
	reached, err := walk.applyUpTo(newest)
	if err != nil {
		if skip, err := v.skip(err); !skip {
			return err
		}
	}
	v.v.Index, v.v.Revision = walk.r.Applied().Index, walk.r.Revision()
	if !reached {
		v.v.Gaps = append(v.v.Gaps, Gap{walk.r.Applied().Index + 1, newest})
	}
	return nil
}

// noBase is the error of an archive from which nothing can be restored.
func (a *Archive) noBase() error {
	return fmt.Errorf("%s: there is no base state, so nothing can be restored yet", a.where)
}

// rebuildBase builds the state of a base by its parts.
func (v *verifier) rebuildBase(b *build) (*walker, error) {
	v.dirs++
	w := &walker{v: v, b: b, dir: filepath.Join(v.o.Dir, fmt.Sprintf("state%d", v.dirs))}
	var err error
	if w.r, err = restore.NewRebuild(v.o.FS, w.dir); err != nil {
		return nil, err
	}
	v.done, v.total = 0, b.total
	b.progress = func(_ string, done, total int64) {
		if v.o.Progress != nil {
			v.o.Progress("rebuilding "+b.base.Object.Key, done, total)
		}
	}
	if err := b.loadBase(w.r); err != nil {
		w.closeState()
		return nil, err
	}
	return w, nil
}

// compareState compares a state with the manifest of a base. replayed is set if the state was
// reached by entries.
func (v *verifier) compareState(r *restore.Rebuild, b *build, replayed bool) error {
	m, name := b.manifest, b.base.Object.Key
	how := "its parts have"
	if replayed {
		how = "the entries before it give"
	}
	if replayed && fsm.Divided(r.AllMeta()) != fsm.Divided(b.metas) {
		return nil // the base is in the middle of an entry
	}
	if err := r.Commit(); err != nil {
		return err
	}
	if rev, compact := r.Store().Revision(), r.Store().CompactRevision(); rev != m.Revision ||
		compact != m.Compact {
		_ = v.a.noteDamage(name,
			fmt.Errorf("%s revision %d, compacted at %d; the manifest has %d and %d", how, rev,
				compact, m.Revision, m.Compact))
		return nil
	}
	if replayed {
		// loadBase has compared the hash of the parts.
		if skip, err := v.skip(b.compareHash(r, how)); skip || err != nil {
			if skip {
				err = nil
			}
			return err
		}
		v.v.Replayed++
		if diff := differentMeta(b.metas, r.AllMeta()); diff != "" {
			_ = v.a.noteDamage(name, fmt.Errorf("%s other meta records: %s", how, diff))
		}
		return nil
	}
	b.metas = slices.Clone(r.AllMeta())
	v.v.Rebuilt++
	v.v.Index, v.v.Revision = max(v.v.Index, m.Index), max(v.v.Revision, m.Revision)
	return nil
}

// differentMeta describes a difference between two sets of meta records, "" for none.
func differentMeta(base, replayed []history.Meta) string {
	values := map[string][]byte{}
	for _, m := range base {
		values[m.Name()] = m.Value
	}
	for _, m := range replayed {
		value, ok := values[m.Name()]
		if !ok {
			return fmt.Sprintf("record %q is not in the base", m.Name())
		}
		if !bytes.Equal(value, m.Value) {
			return fmt.Sprintf("record %q differs", m.Name())
		}
		delete(values, m.Name())
	}
	for name := range values {
		return fmt.Sprintf("record %q is only in the base", name)
	}
	return ""
}

// walker is a state to which further entries are applied.
type walker struct {
	v   *verifier
	b   *build
	r   *restore.Rebuild
	dir string
}

// applyUpTo applies the entries up to an index, and reports whether all of them were there.
func (w *walker) applyUpTo(index uint64) (reached bool, err error) {
	before := w.r.Applied().Index
	list, end := w.v.a.chainLogs(before + 1)
	list = list[:sortedUntil(list, index)]
	w.b.total, w.b.done = 0, 0
	for _, o := range list {
		w.b.total += o.Object.Size
	}
	_, err = w.b.replayLogs(w.r, list, min(index, end))
	w.v.v.Entries += int64(w.r.Applied().Index - before)
	return err == nil && w.r.Applied().Index == index, err
}

// sortedUntil returns how many of the log objects begin at or before an index.
func sortedUntil(list []LogObject, index uint64) int {
	n := 0
	for n < len(list) && list[n].First <= index {
		n++
	}
	return n
}

// closeState removes the state.
func (w *walker) closeState() {
	if w == nil || w.r == nil {
		return
	}
	_ = discard(w.r, w.v.o.FS, w.dir)
	w.r = nil
}
