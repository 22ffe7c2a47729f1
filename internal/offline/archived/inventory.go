package archived

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"vigil/internal/bucket"
	"vigil/internal/store/archive"
)

// Damage is an object that cannot be used, and why.
type Damage struct {
	Name   string `json:"name"`
	Reason string `json:"reason"`
}

func (d Damage) String() string { return d.Name + ": " + d.Reason }

// damageError is an error about an object whose content cannot be used.
type damageError struct{ Damage }

func (e *damageError) Error() string { return e.String() }

// BaseObject is a base state in a bucket.
type BaseObject struct {
	Index, Term uint64
	Object      bucket.Object
	// manifest is nil until it is read.
	manifest *archive.Base
}

// LogObject is a log object in a bucket.
type LogObject struct {
	First, Last uint64
	Object      bucket.Object
}

// Archive is an archive in a bucket, as it was when it was opened.
type Archive struct {
	// Identity is the identity of the archive. If the object is damaged, a manifest provides it.
	Identity archive.Identity
	// Bases and Logs are in the order of their indexes.
	Bases []*BaseObject
	Logs  []LogObject
	// Parts are the parts that exist, by name.
	Parts map[string]bucket.Object
	// Other are the names of objects that do not belong to an archive.
	Other []string

	b       bucket.Bucket
	where   string
	reader  *archive.Reader
	damaged map[string]string
}

// ErrNoArchive reports that the bucket has no archive.
var ErrNoArchive = errors.New("there is no archive")

// Open lists the objects of a bucket, which where names for errors, and reads the identity. keys
// are files of private keys of age.
func Open(ctx context.Context, b bucket.Bucket, where string, keys ...io.Reader) (*Archive, error) {
	a := &Archive{b: b, where: where, Parts: map[string]bucket.Object{},
		damaged: map[string]string{}}
	found := false
	for o, err := range bucket.All(ctx, b, "", "") {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		found = a.addObject(o) || found
	}
	slices.SortFunc(a.Logs, func(x, y LogObject) int {
		return cmp.Or(cmp.Compare(x.First, y.First), cmp.Compare(x.Last, y.Last),
			strings.Compare(x.Object.Key, y.Object.Key))
	})
	if err := a.identify(ctx, found); err != nil {
		return nil, err
	}
	a.reader = archive.NewReader(a.Identity)
	for _, k := range keys {
		if err := a.reader.AddKeys(k); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// addObject sorts an object into the archive, and reports whether it is the identity.
func (a *Archive) addObject(o bucket.Object) bool {
	if o.Key == archive.IdentityName {
		return true
	}
	if index, term, ok := archive.ParseBaseName(o.Key); ok {
		a.Bases = append(a.Bases, &BaseObject{Index: index, Term: term, Object: o})
	} else if first, last, ok := archive.ParseLogName(o.Key); ok {
		a.Logs = append(a.Logs, LogObject{first, last, o})
	} else if archive.IsPartName(o.Key) {
		a.Parts[o.Key] = o
	} else {
		a.Other = append(a.Other, o.Key)
	}
	return false
}

// identify reads the identity. If it is damaged or was deleted, the manifests say which archive it
// is: all of them must agree.
func (a *Archive) identify(ctx context.Context, found bool) error {
	reason := "it is missing"
	if found {
		data, err := bucket.ReadAll(ctx, a.b, archive.IdentityName, archive.MaxJSON)
		if err == nil {
			a.Identity, err = archive.DecodeIdentity(data)
		}
		if err == nil {
			return nil
		}
		if !unusable(err) || errors.Is(err, archive.ErrVersion) {
			return fmt.Errorf("%s: %w", a.where, err)
		}
		reason = err.Error()
	}
	var id *archive.Identity
	for i := len(a.Bases) - 1; i >= 0; i-- {
		o := a.Bases[i]
		data, err := bucket.ReadAll(ctx, a.b, o.Object.Key, archive.MaxJSON)
		if err != nil && unusable(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: %w", a.where, err)
		}
		other, err := archive.IdentityOf(o.Object.Key, data)
		if err != nil {
			continue
		}
		if id == nil {
			id = &other
		} else if id.Archive != other.Archive || id.Cluster != other.Cluster {
			return fmt.Errorf("%s: %s: %s, and the manifests are of different archives", a.where,
				archive.IdentityName, reason)
		}
	}
	switch {
	case id == nil && !found && len(a.Bases)+len(a.Logs)+len(a.Parts) == 0:
		return fmt.Errorf("%s: %w: %s is missing, and the bucket has %d objects of other kinds",
			a.where, ErrNoArchive, archive.IdentityName, len(a.Other))
	case id == nil:
		return fmt.Errorf("%s: %s: %s, and no manifest says which archive it is", a.where,
			archive.IdentityName, reason)
	}
	encrypted, err := a.encrypted(ctx, id)
	if err != nil {
		return fmt.Errorf("%s: %w", a.where, err)
	}
	if encrypted {
		id.Recipients = []string{"unknown"}
	}
	a.Identity = *id
	a.damaged[archive.IdentityName] = reason
	return nil
}

// encrypted reports whether the objects of an archive are encrypted, by the first one with a good
// header.
func (a *Archive) encrypted(ctx context.Context, id *archive.Identity) (bool, error) {
	names := slices.Sorted(maps.Keys(a.Parts))
	for _, o := range a.Logs {
		names = append(names, o.Object.Key)
	}
	for _, name := range names {
		switch h, err := a.readHeader(ctx, name); {
		case err != nil && !unusable(err):
			return false, err
		case err == nil && h.Archive == id.Archive && h.Cluster == uint64(id.Cluster):
			return h.Encrypted, nil
		}
	}
	return false, nil
}

// readHeader returns the unchecked header of an object.
func (a *Archive) readHeader(ctx context.Context, name string) (archive.Header, error) {
	r, err := a.b.Get(ctx, name, 0)
	if err != nil {
		return archive.Header{}, err
	}
	defer r.Close()
	b := make([]byte, archive.HeaderSize)
	if n, err := io.ReadFull(r, b); err != nil && !errors.Is(err, io.ErrUnexpectedEOF) &&
		!errors.Is(err, io.EOF) {
		return archive.Header{}, err
	} else if err != nil {
		b = b[:n]
	}
	if a.reader == nil {
		return archive.PeekHeader(b)
	}
	return a.reader.Header(name, b)
}

// Damages returns the damage that was found so far, by name.
func (a *Archive) Damages() []Damage {
	var out []Damage
	for name, reason := range a.damaged {
		out = append(out, Damage{name, reason})
	}
	slices.SortFunc(out, func(x, y Damage) int { return strings.Compare(x.Name, y.Name) })
	return out
}

// noteDamage records err as the damage of an object. It returns the error.
func (a *Archive) noteDamage(name string, err error) error {
	reason := printable(strings.TrimPrefix(err.Error(), name+": "))
	a.damaged[name] = reason
	return &damageError{Damage{name, reason}}
}

// printable returns s with escapes for characters that a terminal acts on: an object may contain
// anything.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			q := strconv.QuoteRune(r)
			b.WriteString(q[1 : len(q)-1])
		}
	}
	return b.String()
}

// unusable reports whether an error means that an object cannot be used, rather than that it could
// not be read now.
func unusable(err error) bool {
	return errors.Is(err, archive.ErrDamaged) || errors.Is(err, archive.ErrForeign) ||
		errors.Is(err, archive.ErrVersion) || errors.Is(err, bucket.ErrNotFound) ||
		errors.Is(err, bucket.ErrSize)
}

// Manifest returns the manifest of a base. An error of its content is remembered.
func (a *Archive) Manifest(ctx context.Context, o *BaseObject) (*archive.Base, error) {
	// A manifest that was read may be damaged too: its parts may be the parts of another state.
	if reason, bad := a.damaged[o.Object.Key]; bad {
		return nil, &damageError{Damage{o.Object.Key, reason}}
	}
	if o.manifest != nil {
		return o.manifest, nil
	}
	data, err := bucket.ReadAll(ctx, a.b, o.Object.Key, archive.MaxJSON)
	if err != nil && !unusable(err) {
		return nil, err
	}
	var base archive.Base
	if err == nil {
		base, err = archive.DecodeBase(&a.Identity, o.Object.Key, data)
	}
	if err != nil {
		return nil, a.noteDamage(o.Object.Key, err)
	}
	o.manifest = &base
	return o.manifest, nil
}

// getObject returns a whole object, which should have a size: no more is read, because several
// objects are in memory at a time.
func (a *Archive) getObject(ctx context.Context, name string, size int64) ([]byte, error) {
	data, err := bucket.ReadAll(ctx, a.b, name, min(size, archive.MaxObject))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

// chainLogs returns the log objects with the entries from an index on, without a gap, and the index
// of the last one. Damaged objects are not used.
func (a *Archive) chainLogs(from uint64) (list []LogObject, end uint64) {
	end = from - 1
	best := LogObject{}
	i, _ := slices.BinarySearchFunc(a.Logs, from,
		func(o LogObject, n uint64) int { return cmp.Compare(o.First, n) })
	// An object that begins before may end after.
	for _, o := range a.Logs[:i] {
		if a.damaged[o.Object.Key] == "" && o.Last > best.Last {
			best = o
		}
	}
	for {
		for ; i < len(a.Logs) && a.Logs[i].First <= end+1; i++ {
			if o := a.Logs[i]; a.damaged[o.Object.Key] == "" && o.Last > best.Last {
				best = o
			}
		}
		if best.Last <= end {
			return list, end
		}
		list = append(list, best)
		end = best.Last
	}
}

// newestIndex returns the newest index that an object of the archive mentions.
func (a *Archive) newestIndex() (index uint64) {
	for _, o := range a.Logs {
		index = max(index, o.Last)
	}
	if n := len(a.Bases); n > 0 {
		index = max(index, a.Bases[n-1].Index)
	}
	return index
}

// NewestObject returns when the newest object of the archive was written, by the clock of the
// bucket.
func (a *Archive) NewestObject() (t time.Time) {
	for _, o := range a.Logs {
		t = later(t, o.Object.Modified)
	}
	for _, o := range a.Bases {
		t = later(t, o.Object.Modified)
	}
	return t
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Listed describes a base state, and how far the entries after it reach.
type Listed struct {
	Index    uint64    `json:"index"`
	Term     uint64    `json:"term"`
	Revision int64     `json:"revision"`
	Compact  int64     `json:"compactRevision"`
	Time     time.Time `json:"time"`
	Name     string    `json:"name"`
	Parts    int       `json:"parts"`
	Bytes    int64     `json:"bytes"`
	// Logs and LogBytes are the log objects up to the next base, or up to the end of the archive;
	// End is the last index without a gap.
	Logs     int    `json:"logs"`
	LogBytes int64  `json:"logBytes"`
	End      uint64 `json:"entriesTo"`
	// State is "ok", "gap" if entries up to the next base are missing, or the damage.
	State string `json:"state"`
}

// States describes the base states.
func (a *Archive) States(ctx context.Context) ([]Listed, error) {
	out := []Listed{}
	for i, o := range a.Bases {
		until := a.newestIndex()
		if i+1 < len(a.Bases) {
			until = a.Bases[i+1].Index
		}
		x := Listed{Index: o.Index, Term: o.Term, Name: o.Object.Key,
			Time: o.Object.Modified.UTC(), State: "ok"}
		logs, end := a.chainLogs(o.Index + 1)
		for _, l := range logs {
			if l.First <= until {
				x.Logs++
				x.LogBytes += l.Object.Size
			}
		}
		if x.End = min(end, until); x.End < until {
			x.State = "gap"
		}
		m, err := a.Manifest(ctx, o)
		var damage *damageError
		switch {
		case errors.As(err, &damage):
			x.State = "damaged"
			out = append(out, x)
			continue
		case err != nil:
			return nil, err
		}
		x.Revision, x.Compact, x.Time, x.Parts = m.Revision, m.Compact, m.Time, len(m.Parts)
		for _, p := range m.Parts {
			x.Bytes += p.Size
		}
		if !a.complete(m) {
			x.State = "parts are missing"
		}
		out = append(out, x)
	}
	return out, nil
}
