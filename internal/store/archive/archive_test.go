package archive

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// sample is one object of each kind of an archive.
type sample struct {
	id      Identity
	reader  *Reader
	base    Base
	entries []*raftpb.Entry
	objects map[string][]byte
	records []kv.Rev
	live    []kv.Rev
}

func newSample(t testing.TB, key *age.X25519Identity) *sample {
	t.Helper()
	var recipients []string
	if key != nil {
		recipients = []string{key.Recipient().String()}
	}
	s := &sample{id: NewIdentity(0xc1, ID{7}, time.Unix(1, 0), recipients), objects: map[string][]byte{}}
	data, err := s.id.Encode()
	s.put(t, IdentityName, data, err)
	if s.id, err = DecodeIdentity(data); err != nil {
		t.Fatal(err)
	}
	s.reader = NewReader(s.id)
	if key != nil {
		if err := s.reader.AddKeys(bytes.NewBufferString(key.String())); err != nil {
			t.Fatal(err)
		}
	}
	seal, err := NewSealer(s.id, recipients)
	if err != nil {
		t.Fatal(err)
	}
	s.base = NewBase(&s.id)
	s.base.Claim = Claim{2, ID{7}}
	s.base.Index, s.base.Term, s.base.Revision, s.base.Compact, s.base.Hash, s.base.Time = 7, 2, 6, 4, 99, time.Unix(2, 0)
	part := func(p Part, o *Sealed, err error) {
		s.put(t, p.Name, o.Data, err)
		s.base.Parts = append(s.base.Parts, p)
	}
	for _, through := range []int64{3, 6} {
		w := seal.NewRecords()
		for rev := through - 1; rev <= through; rev++ {
			s.records = append(s.records, kv.Rev{Main: rev, Sub: rev})
			if err := w.Add(history.Stamp{Rev: kv.Rev{Main: rev, Sub: rev}, Time: 1000 - rev}, rev == 3, fmt.Appendf(nil, "record %d", rev)); err != nil {
				t.Fatal(err)
			}
		}
		part(w.Seal(through-3, through))
	}
	live := seal.NewLive()
	s.live = []kv.Rev{{Main: 1}, {Main: 1, Sub: 5}, {Main: 2, Sub: 2}, {Main: 3}}
	for _, rev := range s.live {
		if err := live.Add(rev); err != nil {
			t.Fatal(err)
		}
	}
	part(live.Seal(4))
	meta := seal.NewMeta()
	if err := meta.Add(&history.Meta{Bucket: 'm', Key: []byte("k"), Value: []byte("v")}); err != nil {
		t.Fatal(err)
	}
	part(meta.Seal())
	data, err = s.base.Encode()
	s.put(t, s.base.Name(), data, err)

	log := seal.NewLog()
	for i := uint64(8); i < 12; i++ {
		typ := raftpb.EntryNormal
		if i == 9 {
			typ = raftpb.EntryConfChangeV2
		}
		s.entries = append(s.entries, &raftpb.Entry{Index: new(i), Term: new(2 + i/10), Type: typ.Enum(), Data: bytes.Repeat([]byte{byte(i)}, int(i))})
		if err := log.Add(s.entries[len(s.entries)-1]); err != nil {
			t.Fatal(err)
		}
	}
	o, err := log.Seal(LogInfo{Sender: 5, Before: 6, After: 8, FirstTime: time.UnixMilli(3), LastTime: time.UnixMilli(4), Claim: Claim{3, ID{8}}})
	s.put(t, o.Name, o.Data, err)
	return s
}

func (s *sample) put(t testing.TB, name string, data []byte, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s.objects[name] = data
}

// read decodes an object with all of its content.
func (s *sample) read(name string, data []byte) error {
	switch {
	case name == IdentityName:
		_, err := DecodeIdentity(data)
		return err
	case name == s.base.Name():
		_, err := DecodeBase(&s.id, name, data)
		return err
	}
	o, err := s.reader.Open(name, data)
	if err != nil {
		return err
	}
	return drain(o)
}

func drain(o *Object) error {
	switch o.Header.Kind {
	case KindRecords:
		return o.Records(func(history.Stamp, bool, []byte) error { return nil })
	case KindLive:
		return o.Live(func(kv.Rev) error { return nil })
	case KindMeta:
		return o.Meta(func(history.Meta) error { return nil })
	}
	return o.Entries(func(*raftpb.Entry) error { return nil })
}

func newKey(t testing.TB) *age.X25519Identity {
	t.Helper()
	key, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// What is written is read, with encryption and without.
func TestRoundTrip(t *testing.T) {
	for name, key := range map[string]*age.X25519Identity{"plain": nil, "encrypted": newKey(t)} {
		t.Run(name, func(t *testing.T) {
			s := newSample(t, key)
			base, err := DecodeBase(&s.id, s.base.Name(), s.objects[s.base.Name()])
			if err != nil {
				t.Fatal(err)
			}
			var records, live []kv.Rev
			metas := 0
			for _, p := range base.Parts {
				o, err := s.reader.OpenPart(&p, s.objects[p.Name])
				if err != nil {
					t.Fatal(err)
				}
				switch o.Header.Kind {
				case KindRecords:
					err = o.Records(func(at history.Stamp, tombstone bool, data []byte) error {
						rev := at.Rev
						if at.Time != 1000-rev.Main || tombstone != (rev.Main == 3) || string(data) != fmt.Sprintf("record %d", rev.Main) {
							t.Errorf("%v: %v, %q", at, tombstone, data)
						}
						records = append(records, rev)
						return nil
					})
				case KindLive:
					err = o.Live(func(rev kv.Rev) error { live = append(live, rev); return nil })
				case KindMeta:
					err = o.Meta(func(m history.Meta) error {
						metas++
						if m.Bucket != 'm' || string(m.Key) != "k" || string(m.Value) != "v" {
							t.Errorf("%+v", m)
						}
						return nil
					})
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(records, s.records) || !slices.Equal(live, s.live) || metas != 1 {
				t.Errorf("%v, %v, %d", records, live, metas)
			}
			for name, data := range s.objects {
				first, last, ok := ParseLogName(name)
				if !ok {
					continue
				}
				o, err := s.reader.Open(name, data)
				if err != nil {
					t.Fatal(err)
				}
				h := o.Header
				if first != 8 || last != 11 || h.FirstTerm != 2 || h.LastTerm != 3 || h.Before != 6 || h.After != 8 || h.FirstTime != 3 || h.LastTime != 4 || h.Sender != 5 {
					t.Errorf("%+v", h)
				}
				i := 0
				err = o.Entries(func(e *raftpb.Entry) error {
					if w := s.entries[i]; e.GetIndex() != w.GetIndex() || e.GetTerm() != w.GetTerm() || e.GetType() != w.GetType() || !bytes.Equal(e.GetData(), w.GetData()) {
						t.Errorf("%v, want %v", e, w)
					}
					i++
					return nil
				})
				if err != nil || i != 4 {
					t.Error(i, err)
				}
				stop := errors.New("stop")
				if err := o.Entries(func(*raftpb.Entry) error { return stop }); !errors.Is(err, stop) || errors.Is(err, ErrDamaged) {
					t.Error(err)
				}
			}
		})
	}
}

// An object in the next version is refused by name, whatever the fields of that version are.
func TestNextVersion(t *testing.T) {
	s := newSample(t, nil)
	want := fmt.Sprintf("%v: %d, this program reads %d", ErrVersion, Version+1, Version)
	for name, data := range s.objects {
		if name == IdentityName || name == s.base.Name() {
			data = fmt.Appendf(nil, `{"version": %d, "archive": [7], "cluster": {"id": 1}, "claim": "2", "parts": 3}`, Version+1)
		} else {
			data = bytes.Clone(data)
			data[4], data[5], data[7] = Version+1, 99, 99
			le.PutUint32(data[HeaderSize-4:], crc32.Checksum(data[:HeaderSize-4], castagnoli))
		}
		if err := s.read(name, data); !errors.Is(err, ErrVersion) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Every bit of every object matters, and so does each of its bytes.
func TestFlippedBits(t *testing.T) {
	for name, key := range map[string]*age.X25519Identity{"plain": nil, "encrypted": newKey(t)} {
		s := newSample(t, key)
		s.reader.keys = nil // damage is found without a key
		for object, data := range s.objects {
			check := func(data []byte) error {
				if object == IdentityName || object == s.base.Name() {
					return s.read(object, data)
				}
				_, err := s.reader.Open(object, data)
				return err
			}
			if err := check(data); err != nil {
				t.Fatal(err)
			}
			for i := range 8 * len(data) {
				b := bytes.Clone(data)
				b[i/8] ^= 1 << (i % 8)
				if err := check(b); err == nil {
					t.Errorf("%s: bit %d of %s does not matter", name, i, object)
				} else if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrVersion) && !errors.Is(err, ErrForeign) {
					t.Errorf("%s: bit %d of %s: %v", name, i, object, err)
				}
			}
			for n := range len(data) {
				if check(data[:n]) == nil {
					t.Errorf("%s: %d of %d bytes of %s are enough", name, n, len(data), object)
				}
			}
			if check(append(bytes.Clone(data), 0)) == nil {
				t.Errorf("%s: a byte more at the end of %s does not matter", name, object)
			}
		}
	}
}

// An object does not count under the name of another one, and not in another archive.
func TestSwappedAndForeign(t *testing.T) {
	s, other := newSample(t, nil), newSample(t, nil)
	for name := range s.objects {
		for from, data := range s.objects {
			if from != name && s.read(name, data) == nil {
				t.Errorf("%s counts as %s", from, name)
			}
		}
	}
	for name, data := range other.objects {
		if name == IdentityName {
			continue
		}
		err := s.read(name, data)
		if name == s.base.Name() {
			_, err = DecodeBase(&s.id, name, data)
		}
		if !errors.Is(err, ErrForeign) {
			t.Errorf("%s of another archive: %v", name, err)
		}
	}
	base := s.base
	data, err := base.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := DecodeBase(&s.id, BaseName(8, 2), data); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
	// A part that is not the one that a manifest lists.
	p := base.Parts[0]
	p.Through++
	if _, err := s.reader.OpenPart(&p, s.objects[p.Name]); !errors.Is(err, ErrForeign) {
		t.Error(err)
	}
}

// Without a key that fits, an encrypted object has no content; and encryption neither begins nor ends in an archive.
func TestKeys(t *testing.T) {
	s := newSample(t, newKey(t))
	secret := []byte("record 2")
	for name, data := range s.objects {
		if bytes.Contains(data, secret) {
			t.Errorf("%s has plain text", name)
		}
		if name == IdentityName || name == s.base.Name() {
			continue
		}
		for _, key := range []*age.X25519Identity{nil, newKey(t)} {
			r := NewReader(s.id)
			if key != nil {
				_ = r.AddKeys(bytes.NewBufferString(key.String()))
			}
			o, err := r.Open(name, data)
			if err != nil {
				t.Fatal(err)
			}
			if err := drain(o); !errors.Is(err, ErrKey) || errors.Is(err, ErrDamaged) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if _, err := NewSealer(s.id, nil); err == nil {
		t.Error("an encrypted archive continues without encryption")
	}
	if _, err := NewSealer(newSample(t, nil).id, s.id.Recipients); err == nil {
		t.Error("an archive without encryption continues encrypted")
	}
	if err := CheckRecipients([]string{"age1x"}); err == nil {
		t.Error("a recipient that is no key")
	}
	if err := s.reader.AddKeys(bytes.NewBufferString("AGE-SECRET-KEY-1XYZ")); err == nil || bytes.Contains([]byte(err.Error()), []byte("XYZ")) {
		t.Error(err)
	}
}

// A manifest that contradicts itself is neither written nor read.
func TestBaseChecks(t *testing.T) {
	for name, change := range map[string]func(b *Base){
		"gap":            func(b *Base) { b.Parts[1].After++ },
		"missing part":   func(b *Base) { b.Parts = b.Parts[1:] },
		"no meta":        func(b *Base) { b.Parts = b.Parts[:3] },
		"order":          func(b *Base) { slices.Reverse(b.Parts) },
		"end":            func(b *Base) { b.Revision++ },
		"compact":        func(b *Base) { b.Compact = b.Revision + 1 },
		"live":           func(b *Base) { b.Compact-- },
		"index":          func(b *Base) { b.Index = 0 },
		"name of a part": func(b *Base) { b.Parts[0].Name = "part/../x" },
		"size":           func(b *Base) { b.Parts[0].Size = MaxObject + 1 },
	} {
		s := newSample(t, nil)
		change(&s.base)
		if _, err := s.base.Encode(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestNames(t *testing.T) {
	for i := range 1000 {
		first := rand.Uint64N(1<<40) + 1
		last := first + rand.Uint64N(100)
		name := NewLogName(first, last)
		f, l, ok := ParseLogName(name)
		if !ok || f != first || l != last {
			t.Fatal(i, name, f, l, ok)
		}
		if LogAfter(first) >= name || LogAfter(first+1) < name {
			t.Errorf("%s, %s, %s", LogAfter(first), name, LogAfter(first+1))
		}
		if index, term, ok := ParseBaseName(BaseName(first, last)); !ok || index != first || term != last {
			t.Fatal(index, term, ok)
		}
	}
	for _, bad := range []string{"", "log/", "log/0000000000000001-0000000000000002-0000000g", "log/0000000000000003-0000000000000002-00000000",
		"log/0000000000000001_0000000000000002-00000000", "LOG/0000000000000001-0000000000000002-00000000", "log/0000000000000000-0000000000000002-00000000",
		"log/000000000000000A-000000000000000B-00000000", "base/0000000000000001-0000000000000002.jsox", "base/0000000000000001.json", "part/x"} {
		_, _, log := ParseLogName(bad)
		_, _, base := ParseBaseName(bad)
		if log || base || IsPartName(bad) {
			t.Errorf("%q is a name", bad)
		}
	}
}

// Entries that do not follow each other are not accepted.
func TestLogOrder(t *testing.T) {
	s := newSample(t, nil)
	seal, err := NewSealer(s.id, nil)
	if err != nil {
		t.Fatal(err)
	}
	entry := func(index, term uint64) *raftpb.Entry { return &raftpb.Entry{Index: &index, Term: &term} }
	for _, next := range []*raftpb.Entry{entry(5, 3), entry(7, 3), entry(6, 2), entry(0, 3)} {
		w := seal.NewLog()
		if err := w.Add(entry(5, 3)); err != nil {
			t.Fatal(err)
		}
		if err := w.Add(next); err == nil {
			t.Errorf("%v follows", next)
		}
	}
	if _, err := seal.NewLog().Seal(LogInfo{}); err == nil {
		t.Error("a log object without an entry")
	}
}

func FuzzObjects(f *testing.F) {
	s := newSample(f, nil)
	for _, data := range s.objects {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = DecodeIdentity(data)
		_, _ = DecodeBase(&s.id, s.base.Name(), data)
		for name := range s.objects {
			if o, err := s.reader.Open(name, data); err == nil {
				_ = drain(o)
			}
		}
	})
}

// FuzzContent decodes contents whose checksums match.
func FuzzContent(f *testing.F) {
	s := newSample(f, nil)
	f.Add(byte(KindLog), []byte{itemEntry, 1, 0, 3, 'a', 'b', 'c', itemEnd})
	f.Add(byte(KindLive), []byte{2, 3, 1, 0})
	f.Add(byte(KindRecords), []byte{1, 2, 0, 3, 'a', 'b', 'c', 4})
	f.Add(byte(KindLog), []byte{itemEntry, 1, 0, 0xff, 0xff, 0xff, 0xff, 3})
	f.Fuzz(func(t *testing.T, kind byte, content []byte) {
		seal, err := NewSealer(s.id, nil)
		if err != nil {
			t.Fatal(err)
		}
		w := sealer{s: seal, items: 1}
		if w.write(content) != nil {
			t.Fatal(w.err)
		}
		o, err := w.seal(Header{Kind: Kind(kind), First: 1, Last: 1, FirstTerm: 1, LastTerm: 1})
		if err != nil {
			return
		}
		_ = drain(&Object{Header: o.Header, name: "x", body: o.Data[HeaderSize:]})
	})
}
