package etcdwal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"vigil/internal/vfs/memfs"
)

// log writes files as etcd does.
type log struct {
	crc   uint32
	files map[string]*bytes.Buffer
	at    *bytes.Buffer
	seq   uint64
}

// cut begins a file whose first entry will have an index.
func (l *log) cut(index uint64) *log {
	if l.files == nil {
		l.files = map[string]*bytes.Buffer{}
	}
	l.at = &bytes.Buffer{}
	l.files[fmt.Sprintf("%016x-%016x.wal", l.seq, index)] = l.at
	l.seq++
	crc := l.crc
	l.record(typeCRC, nil)
	l.crc = crc
	l.record(typeMetadata, []byte{8, 1, 16, 9}) // member 1 of cluster 9
	return l
}

func (l *log) record(typ uint64, data []byte) {
	sum := l.crc
	if typ != typeCRC {
		l.crc = crc32.Update(l.crc, castagnoli, data)
		sum = l.crc
	}
	b := protowire.AppendVarint(protowire.AppendTag(nil, fieldType, protowire.VarintType), typ)
	b = protowire.AppendVarint(protowire.AppendTag(b, fieldCRC, protowire.VarintType), uint64(sum))
	if data != nil {
		b = protowire.AppendBytes(protowire.AppendTag(b, fieldData, protowire.BytesType), data)
	}
	field := uint64(len(b))
	if pad := (8 - len(b)%8) % 8; pad > 0 {
		field |= uint64(0x80|pad) << 56
		b = append(b, make([]byte, pad)...)
	}
	l.at.Write(binary.LittleEndian.AppendUint64(nil, field))
	l.at.Write(b)
}

func (l *log) entry(t testing.TB, term, index uint64) *log {
	t.Helper()
	b, err := proto.Marshal(&raftpb.Entry{Term: &term, Index: &index,
		Data: fmt.Appendf(nil, "entry %d of term %d %s", index, term,
			strings.Repeat("x", int(index%90)))})
	if err != nil {
		t.Fatal(err)
	}
	l.record(typeEntry, b)
	return l
}

func (l *log) entries(t testing.TB, term, from, to uint64) *log {
	t.Helper()
	for i := from; i <= to; i++ {
		l.entry(t, term, i)
		l.record(typeState, []byte{8, 1, 24, 1}) // term 1, commit index 1
	}
	return l
}

// read reads files after an index; fill is the preallocated space at the end of each.
func read(t testing.TB, files map[string][]byte, fill int, after uint64) (*Log, error) {
	t.Helper()
	fsys := memfs.New()
	if err := fsys.MkdirAll("wal"); err != nil {
		t.Fatal(err)
	}
	for name, b := range files {
		f, err := fsys.Create("wal/" + name)
		if err != nil {
			t.Fatal(err)
		}
		b = append(bytes.Clone(b), make([]byte, fill)...)
		if _, err := f.WriteAt(b, 0); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return Read(fsys, "wal", after)
}

func (l *log) bytes() map[string][]byte {
	out := map[string][]byte{}
	for n, b := range l.files {
		out[n] = b.Bytes()
	}
	return out
}

func indexes(l *Log) string {
	var out []string
	for _, e := range l.Entries {
		out = append(out, fmt.Sprintf("%d/%d", e.GetTerm(), e.GetIndex()))
	}
	return strings.Join(out, " ")
}

func TestRead(t *testing.T) {
	var l log
	l.cut(0).entries(t, 2, 1, 4)
	l.cut(5).entries(t, 2, 5, 7).entries(t, 3, 6, 8) // 6 and 7 are replaced
	l.cut(9).entries(t, 3, 9, 10)
	files := l.bytes()
	files["0.tmp"] = []byte("prepared")
	files["0000000000000007-0000000000000001.wal.broken"] = []byte("put aside")
	for after, want := range map[uint64]string{
		0: "2/1 2/2 2/3 2/4 2/5 3/6 3/7 3/8 3/9 3/10", 4: "2/5 3/6 3/7 3/8 3/9 3/10",
		5: "3/6 3/7 3/8 3/9 3/10",
		6: "3/7 3/8 3/9 3/10", 8: "3/9 3/10", 9: "3/10", 10: "", 99: "",
	} {
		for _, fill := range []int{0, 4096} {
			got, err := read(t, files, fill, after)
			if err != nil || indexes(got) != want || got.Torn != 0 {
				t.Errorf("after %d: %v, %+v; want %s", after, err, got, want)
			}
		}
	}
	delete(files, fmt.Sprintf("%016x-%016x.wal", 1, 5))
	if _, err := read(t, files, 0, 2); !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "is missing") {
		t.Errorf("a file in the middle is missing: %v", err)
	}
	delete(files, fmt.Sprintf("%016x-%016x.wal", 0, 0))
	if _, err := read(t, files, 0, 2); !errors.Is(err, ErrCorrupt) ||
		!strings.Contains(err.Error(), "in between are missing") {
		t.Errorf("it begins too late: %v", err)
	}
	if _, err := read(t, nil, 0, 2); !errors.Is(err, ErrCorrupt) {
		t.Errorf("there is no file: %v", err)
	}
}

// Of the last record any part may be missing, and sectors of it that were never written. Anything
// else that is wrong is damage.
func TestTornAndDamaged(t *testing.T) {
	var l log
	l.cut(0).entries(t, 2, 1, 3)
	first := fmt.Sprintf("%016x-%016x.wal", 0, 0)
	whole := l.at.Len()
	long := bytes.Repeat([]byte("y"), 2000)
	b, err := proto.Marshal(&raftpb.Entry{Term: new(uint64(2)), Index: new(uint64(4)), Data: long})
	if err != nil {
		t.Fatal(err)
	}
	l.record(typeEntry, b)
	all := l.files[first].Bytes()
	for n := whole + 8; n < len(all)-sector; n += 100 {
		got, err := read(t, map[string][]byte{first: all[:n]}, 4096, 0)
		if err != nil || len(got.Entries) != 3 || got.Torn == 0 {
			t.Fatalf("cut at %d of %d: %v, %+v", n, len(all), err, got)
		}
	}
	found := 0
	for at := range all {
		bad := bytes.Clone(all)
		bad[at] ^= 1 << (at % 8)
		got, err := read(t, map[string][]byte{first: bad}, 4096, 0)
		switch {
		case errors.Is(err, ErrCorrupt):
			found++
		case err != nil:
			t.Fatalf("byte %d: %v", at, err)
		case len(got.Entries) < 3 && at >= frameSize && got.Torn == 0:
			// The length of a record, or its padding, which no checksum covers.
		}
		for _, e := range append([]*raftpb.Entry{}, entriesOf(got)...) {
			if i := e.GetIndex(); i < 4 &&
				!strings.HasPrefix(string(e.GetData()), fmt.Sprintf("entry %d of term 2 ", i)) {
				t.Fatalf("byte %d: a damaged entry was returned: %q", at, e.GetData())
			}
		}
	}
	if found < len(all)/2 {
		t.Errorf("only %d of %d flipped bits were found", found, len(all))
	}
	// What is torn in a file that others follow is damage.
	l.cut(5).entries(t, 2, 5, 6)
	files := l.bytes()
	files[first] = all[:whole+100]
	if _, err := read(t, files, 4096, 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("torn in the middle: %v", err)
	}
}

// A flipped bit in the length of any record is damage, wherever the longer record ends; entries are
// never left out for it.
func TestFlippedLengths(t *testing.T) {
	var l log
	l.cut(0)
	const n = 100
	var heads []int
	for i := uint64(1); i <= n; i++ {
		if i%12 == 0 || i >= n-1 {
			heads = append(heads, l.at.Len())
		}
		l.entry(t, 2, i)
	}
	name := fmt.Sprintf("%016x-%016x.wal", 0, 0)
	all := l.at.Bytes()
	for _, fill := range []int{0, 4096} {
		for _, at := range heads {
			for bit := range 64 {
				bad := bytes.Clone(all)
				bad[at+bit/8] ^= 1 << (bit % 8)
				got, err := read(t, map[string][]byte{name: bad}, fill, 0)
				if err == nil && len(got.Entries) != n ||
					err != nil && !errors.Is(err, ErrCorrupt) {
					t.Fatalf("bit %d of the length at %d, %d bytes prepared: %d of %d entries, torn %d, %v", bit, at, fill, len(got.Entries), n, got.Torn, err)
				}
			}
		}
	}
	// A sector of zeros that records follow is damage: nothing proves that they were not
	// acknowledged.
	bad := bytes.Clone(all)
	clear(bad[2*sector : 3*sector])
	if got, err := read(t, map[string][]byte{name: bad}, 4096, 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a sector in the middle: %+v, %v", got, err)
	}
	// The same at the end was torn, in the first sector of the last record or in a later one.
	big, err := proto.Marshal(&raftpb.Entry{Term: new(uint64(2)), Index: new(uint64(n + 1)),
		Data: bytes.Repeat([]byte("y"), 5*sector)})
	if err != nil {
		t.Fatal(err)
	}
	begin := l.at.Len()
	l.record(typeEntry, big)
	all = l.at.Bytes()
	for from := (begin + frameSize) / sector * sector; from < len(all); from += sector {
		bad := bytes.Clone(all)
		clear(bad[max(from, begin+frameSize):min(from+sector, len(all))])
		got, err := read(t, map[string][]byte{name: bad}, 4096, 0)
		if err != nil || len(got.Entries) != n || got.Torn == 0 {
			t.Errorf("torn at %d of %d: %v, %+v", from, len(all), err, got)
		}
	}
}

// A snapshot that was received and accepted is found; one that is not committed, or that the
// database has, is not.
func TestAccepted(t *testing.T) {
	snapshot := func(index uint64) []byte {
		b := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), index)
		return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), 2)
	}
	state := func(commit uint64) []byte {
		b, err := proto.Marshal(&raftpb.HardState{Term: new(uint64(2)), Vote: new(uint64(1)),
			Commit: &commit})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for _, c := range []struct {
		after, snapshot, commit, want uint64
	}{{3, 40, 40, 40}, {3, 40, 39, 0}, {40, 40, 40, 0}, {50, 40, 60, 0}, {2, 3, 3, 0}} {
		var l log
		l.cut(0)
		l.record(typeSnapshot, snapshot(0))
		for i := uint64(1); i <= 3; i++ {
			l.entry(t, 2, i)
		}
		l.record(typeSnapshot, snapshot(c.snapshot))
		l.record(typeState, state(c.commit))
		l.entry(t, 2, c.snapshot+1)
		fsys := memfs.New()
		if err := fsys.MkdirAll("wal"); err != nil {
			t.Fatal(err)
		}
		for name, b := range l.bytes() {
			f, err := fsys.Create("wal/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(b, 0); err != nil {
				t.Fatal(err)
			}
		}
		// A snapshot at 3 is the member's own: it has that entry.
		if got, err := Accepted(fsys, "wal", c.after); err != nil || got != c.want {
			t.Errorf("%+v: %d, %v", c, got, err)
		}
		got, err := Read(fsys, "wal", max(c.after, c.want))
		if c.want > 0 && (err != nil || len(got.Entries) != 1) {
			t.Errorf("after the snapshot: %+v, %v", got, err)
		}
	}
}

func entriesOf(l *Log) []*raftpb.Entry {
	if l == nil {
		return nil
	}
	return l.Entries
}

func FuzzRead(f *testing.F) {
	var l log
	l.cut(0).entries(f, 2, 1, 4)
	f.Add(l.at.Bytes(), uint64(0))
	l.cut(0).entries(f, 2, 5, 7).entries(f, 3, 6, 8)
	f.Add(l.at.Bytes(), uint64(6))
	f.Fuzz(func(t *testing.T, b []byte, after uint64) {
		got, err := read(t, map[string][]byte{fmt.Sprintf("%016x-%016x.wal", 0, 0): b}, 0, after)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		for i, e := range got.Entries {
			if e.GetIndex() != after+1+uint64(i) {
				t.Fatalf("entry %d after %d has the index %d", i, after, e.GetIndex())
			}
		}
	})
}

// TestLast: the last entry is known, also if the database has it and the last file has none.
func TestLast(t *testing.T) {
	for _, after := range []uint64{0, 3, 4, 6, 7, 8} {
		var l log
		l.cut(0).entries(t, 2, 1, 4)
		l.cut(5).entries(t, 2, 5, 9).entries(t, 3, 6, 8)
		l.cut(9)
		got, err := read(t, l.bytes(), 4096, after)
		if err != nil || got.LastTerm != 3 || got.LastIndex != 8 || got.ClusterID != 9 {
			t.Errorf("after %d: %+v, %v", after, got, err)
		}
	}
}
