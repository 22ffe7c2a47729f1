// Package lineage tells the history of a cluster from every other history, as data.
//
// The id of a cluster follows from its names, and terms and indexes are small numbers, so two
// histories may agree in all of them: a backup that is restored twice, a cluster that is wiped and
// started with the same flags, a disk that is set back. So the leader of a term claims the term
// with a random id, in an entry. A State lists the claimed terms, and where the log left each of
// them. Whoever knows a claim and an index of a history can ask whether another history has all
// entries of it up to that index: Judge.
//
// The first claim of a history is its incarnation. A restore drops the list, and a member that is
// forced to be a cluster of its own begins another one, so both have a new incarnation.
//
// A State also lists the archives that the incarnation has begun, by place: an archive that is no
// longer at its place is missing, and not new.
//
// A State is immutable and has no clock, file or source of random numbers.
//
// # Invariants
//
//  1. Terms ascend strictly, and ends ascend with them. Only the newest term may have no end.
//  2. A claim has an effect only in an entry of its term, and the first claim of a term counts.
//     Raft has one leader a term, so entries of a claimed term are equal in all histories that have
//     the claim.
//  3. The records of a State rebuild it. There are at most MaxTerms claims and MaxArchives
//     archives.
//  4. The next State depends on the State and the arguments only.
//  5. What Judge calls Foreign stays Foreign in every later State: later States only forget claims,
//     and add none for an older term.
package lineage

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"vigil/internal/state/record"
)

const (
	// MaxTerms is the limit for claims. Older ones are forgotten.
	MaxTerms = 1024
	// MaxArchives is the limit for archives.
	MaxArchives = 256
)

// ErrTooManyArchives reports that the limit for archives is reached.
var ErrTooManyArchives = fmt.Errorf("lineage: this cluster has begun %d archives, which is the most", MaxArchives)

// ID is a random number that identifies a claim.
type ID [16]byte

func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Claim is the claim that the leader of a term proposes.
type Claim struct {
	Term uint64
	ID   ID
	// Restart begins a new incarnation: all earlier claims are forgotten.
	Restart bool
}

// Mark names a claim of a history. The zero value names none.
type Mark struct {
	Term uint64
	ID   ID
}

// Archive is an archive that the incarnation has begun.
type Archive struct {
	// Place is where it is, see PlaceOf.
	Place [32]byte
	ID    ID
}

// PlaceOf returns the place that stands for the address of a bucket.
func PlaceOf(address string) [32]byte { return sha256.Sum256([]byte(address)) }

// term is a claimed term.
type term struct {
	Mark
	// end is the index of the last entry of the term, 0 until there is an entry of a later term.
	end uint64
}

// State is the list of claims at one position of the log. The zero value has none.
type State struct {
	incarnation ID
	terms       []term
	archives    []Archive // by place
}

// Incarnation returns the id of the first claim, the zero value if there is no claim.
func (s *State) Incarnation() ID { return s.incarnation }

// Newest returns the newest claim, the zero value if there is none.
func (s *State) Newest() Mark {
	if len(s.terms) == 0 {
		return Mark{}
	}
	return s.terms[len(s.terms)-1].Mark
}

// Fading reports whether so many claims are newer than a term that the claim of the term is
// forgotten, or will be before long. The caller should replace whatever has that claim with
// something that has the newest claim: Judge returns Foreign for a claim that is forgotten.
func (s *State) Fading(number uint64) bool {
	i, _ := s.find(number + 1)
	return len(s.terms)-i >= MaxTerms/2
}

// Archive returns the archive that was begun at an address, false for none.
func (s *State) Archive(address string) (ID, bool) {
	i, found := s.place(PlaceOf(address))
	if !found {
		return ID{}, false
	}
	return s.archives[i].ID, true
}

func (s *State) place(p [32]byte) (int, bool) {
	return slices.BinarySearchFunc(s.archives, p,
		func(a Archive, p [32]byte) int { return bytes.Compare(a.Place[:], p[:]) })
}

// Begin returns the State after an archive was begun, and the records that differ. The first
// archive of a place counts. Errors: ErrTooManyArchives.
func (s *State) Begin(a Archive) (*State, []Record, error) {
	i, found := s.place(a.Place)
	switch {
	case found || a.ID == ID{} || len(s.terms) == 0:
		return s, nil, nil
	case len(s.archives) >= MaxArchives:
		return s, nil, ErrTooManyArchives
	}
	next := *s
	next.archives = slices.Insert(slices.Clone(s.archives), i, a)
	return &next, []Record{a.record()}, nil
}

// Verdict says whether a history has the entries of another one.
type Verdict int

// The verdicts.
const (
	// Unknown: this history has not reached the term of the claim, or the index.
	Unknown Verdict = iota
	// Same: this history has the same entries up to the index.
	Same
	// Foreign: this history does not have them, and never will.
	Foreign
)

// Judge says whether this history, which is applied up to an index, has all entries up to last of a
// history that has the claim of m, and no entry of a later term at or before last. s is the State
// at the applied index or a later one.
func (s *State) Judge(m Mark, last, applied uint64) Verdict {
	i, found := s.find(m.Term)
	switch {
	case !found && i == len(s.terms):
		return Unknown
	case !found || s.terms[i].ID != m.ID:
		return Foreign
	}
	switch end := s.terms[i].end; {
	case end > 0 && last > end:
		return Foreign
	case last > applied:
		return Unknown
	}
	return Same
}

// find returns the place of a term.
func (s *State) find(number uint64) (int, bool) {
	return slices.BinarySearchFunc(s.terms, number, func(t term, number uint64) int {
		switch {
		case t.Term < number:
			return -1
		case t.Term > number:
			return 1
		}
		return 0
	})
}

// Follow returns the State after an entry, and the records that differ. The caller calls it for
// each entry, before it applies the content.
func (s *State) Follow(number, index uint64) (*State, []Record) {
	n := len(s.terms)
	if n == 0 || s.terms[n-1].Term >= number || s.terms[n-1].end > 0 {
		return s, nil
	}
	next := *s
	next.terms = slices.Clone(s.terms)
	next.terms[n-1].end = index - 1
	return &next, []Record{next.terms[n-1].record()}
}

// Claim returns the State after a claim in an entry of its term, and the records that differ. A
// claim that is not newer than the newest one changes nothing, unless it begins a new incarnation.
func (s *State) Claim(c Claim) (*State, []Record) {
	if c.Term == 0 || c.ID == (ID{}) {
		return s, nil
	}
	added := term{Mark: Mark{c.Term, c.ID}}
	if c.Restart || len(s.terms) == 0 {
		next := &State{incarnation: c.ID, terms: []term{added}}
		records := []Record{next.root(), added.record()}
		for _, t := range s.terms {
			if t.Term != c.Term {
				records = append(records, t.deleted())
			}
		}
		for _, a := range s.archives {
			records = append(records, Record{Key: a.Place[:], Deleted: true})
		}
		return next, records
	}
	if s.Newest().Term >= c.Term {
		return s, nil
	}
	next := *s
	next.terms = append(slices.Clone(s.terms), added)
	records := []Record{added.record()}
	if len(next.terms) > MaxTerms {
		records = append(records, next.terms[0].deleted())
		next.terms = next.terms[1:]
	}
	return &next, records
}

// Record is a stored or deleted claim or archive. The key of a claim is its term as a big-endian
// u64, the key of an archive its place. The values have a version byte, then the id, and for a
// claim the end as uvarint. docs/formats/history.md describes them too.
type Record struct {
	Key, Value []byte
	Deleted    bool
}

const recordVersion byte = 1

// rootKey is the key of the incarnation.
var rootKey = []byte("incarnation")

func (s *State) root() Record {
	return Record{Key: rootKey, Value: append([]byte{recordVersion}, s.incarnation[:]...)}
}

func (t *term) key() []byte { return binary.BigEndian.AppendUint64(nil, t.Term) }

func (t *term) record() Record {
	v := append([]byte{recordVersion}, t.ID[:]...)
	return Record{Key: t.key(), Value: binary.AppendUvarint(v, t.end)}
}

func (a *Archive) record() Record {
	return Record{Key: a.Place[:], Value: append([]byte{recordVersion}, a.ID[:]...)}
}

func (t *term) deleted() Record { return Record{Key: t.key(), Deleted: true} }

// Records returns the records that rebuild s.
func (s *State) Records() []Record {
	if len(s.terms) == 0 {
		return nil
	}
	out := []Record{s.root()}
	for i := range s.terms {
		out = append(out, s.terms[i].record())
	}
	for i := range s.archives {
		out = append(out, s.archives[i].record())
	}
	return out
}

// Load returns the State of its records, in any order.
func Load(records []Record) (*State, error) {
	s := &State{}
	for _, r := range records {
		malformed := fmt.Errorf("lineage: malformed record %x of %q", r.Value, r.Key)
		f := record.NewReader(r.Value)
		if r.Deleted || f.Byte() != recordVersion {
			return nil, malformed
		}
		id, ok := readID(f)
		switch {
		case !ok:
			return nil, malformed
		case string(r.Key) == string(rootKey):
			s.incarnation = id
		case len(r.Key) == 8:
			s.terms = append(s.terms,
				term{Mark: Mark{binary.BigEndian.Uint64(r.Key), id}, end: f.Uvarint()})
		case len(r.Key) == 32:
			s.archives = append(s.archives, Archive{[32]byte(r.Key), id})
		default:
			return nil, malformed
		}
		if !f.Complete() {
			return nil, malformed
		}
	}
	slices.SortFunc(s.terms, func(a, b term) int {
		if a.Term < b.Term {
			return -1
		}
		return 1
	})
	slices.SortFunc(s.archives,
		func(a, b Archive) int { return bytes.Compare(a.Place[:], b.Place[:]) })
	return s, s.valid()
}

func readID(f *record.Reader) (id ID, ok bool) {
	for i := range id {
		id[i] = f.Byte()
	}
	return id, !f.Failed() && id != ID{}
}

// valid reports why s breaks an invariant.
func (s *State) valid() error {
	if (len(s.terms) == 0) != (s.incarnation == ID{}) || len(s.terms) > MaxTerms ||
		len(s.archives) > MaxArchives || len(s.terms) == 0 && len(s.archives) > 0 {
		return fmt.Errorf("lineage: %d claims, %d archives and incarnation %s", len(s.terms),
			len(s.archives), s.incarnation)
	}
	for i, t := range s.terms {
		newest := i == len(s.terms)-1
		if t.Term == 0 || t.end == 0 && !newest ||
			i > 0 && (t.Term <= s.terms[i-1].Term || t.end > 0 && t.end <= s.terms[i-1].end) {
			return errors.New("lineage: the claims are not in order")
		}
	}
	return nil
}
