package format

import (
	"sort"

	"vigil/internal/kv"
)

// maxGap is the longest run of absent main revisions that a dense table bridges.
const maxGap = 64

// locator finds records of one segment: they are numbered from 0 in the order of their revisions,
// and each has an offset.
type locator interface {
	// Find returns the number of the record at rev, -1 if there is none.
	Find(rev kv.Rev) int
	// Ceil returns the number of the first record at or above rev, len() if there is none.
	Ceil(rev kv.Rev) int
	// Offset returns where record i begins.
	Offset(i int) uint32
	Len() int
}

// Table is a locator that grows. Its entries never change, so a copy of the struct stays valid
// while the original grows.
//
// It is dense as long as the revisions are: main revisions without a long gap, each with subs from
// 0 on without a hole. Then a lookup is two array reads. The first record that breaks this makes it
// sparse: sorted entries and a binary search.
type Table struct {
	first  int64
	Mains  []uint32 // the number of the first record at main revision first+i or above
	offs   []uint32
	Sparse []Entry
	// Sorted is set if sparse is in use and mains and offs are not.
	Sorted bool
}

// Entry is a record in a sparse table.
type Entry struct {
	Main int64
	Sub  uint32
	Off  uint32
}

// Rev returns the revision of the entry.
func (e *Entry) Rev() kv.Rev { return kv.Rev{Main: e.Main, Sub: int64(e.Sub)} }

// Len returns the number of records.
func (t *Table) Len() int {
	if t.Sorted {
		return len(t.Sparse)
	}
	return len(t.offs)
}

// Offset returns where record i begins.
func (t *Table) Offset(i int) uint32 {
	if t.Sorted {
		return t.Sparse[i].Off
	}
	return t.offs[i]
}

// Append appends a record above all others.
func (t *Table) Append(rev kv.Rev, off uint32) {
	if !t.Sorted && !t.addDense(rev, off) {
		t.toSparse()
	}
	if t.Sorted {
		t.Sparse = append(t.Sparse, Entry{Main: rev.Main, Sub: uint32(rev.Sub), Off: off})
	}
}

func (t *Table) addDense(rev kv.Rev, off uint32) bool {
	n := len(t.offs)
	if n == 0 {
		t.first = rev.Main
	}
	next := t.first + int64(len(t.Mains)) // the first main that is not in the table
	switch {
	case rev.Main >= next:
		if rev.Sub != 0 || rev.Main-next > maxGap {
			return false
		}
		for ; next <= rev.Main; next++ {
			t.Mains = append(t.Mains, uint32(n))
		}
	case rev.Sub != int64(n)-int64(t.Mains[len(t.Mains)-1]):
		return false
	}
	t.offs = append(t.offs, off)
	return true
}

func (t *Table) toSparse() {
	t.Sparse = make([]Entry, 0, 2*len(t.offs)+1)
	for i, from := range t.Mains {
		to := uint32(len(t.offs))
		if i+1 < len(t.Mains) {
			to = t.Mains[i+1]
		}
		for n := from; n < to; n++ {
			t.Sparse = append(t.Sparse, Entry{t.first + int64(i), n - from, t.offs[n]})
		}
	}
	t.Sorted, t.Mains, t.offs = true, nil, nil
}

// span returns the numbers of the records at a main revision of a dense table.
func (t *Table) span(main int64) (from, to int) {
	switch i := main - t.first; {
	case i < 0 || len(t.Mains) == 0:
		return 0, 0
	case i >= int64(len(t.Mains)):
		return len(t.offs), len(t.offs)
	case i+1 == int64(len(t.Mains)):
		return int(t.Mains[i]), len(t.offs)
	default:
		return int(t.Mains[i]), int(t.Mains[i+1])
	}
}

// Find returns the number of the record at rev, -1 if there is none.
func (t *Table) Find(rev kv.Rev) int {
	if t.Sorted {
		i := t.Ceil(rev)
		if i == len(t.Sparse) || t.Sparse[i].Rev() != rev {
			return -1
		}
		return i
	}
	from, to := t.span(rev.Main)
	if rev.Sub < 0 || rev.Sub >= int64(to-from) {
		return -1
	}
	return from + int(rev.Sub)
}

// Ceil returns the number of the first record at or above rev, Len() if there is none.
func (t *Table) Ceil(rev kv.Rev) int {
	if t.Sorted {
		return sort.Search(len(t.Sparse), func(i int) bool { return !t.Sparse[i].Rev().Less(rev) })
	}
	from, to := t.span(rev.Main)
	return from + int(min(max(rev.Sub, 0), int64(to-from)))
}

// Size returns the bytes of the encoded table.
func (t *Table) Size() int64 {
	if t.Sorted {
		return int64(len(t.Sparse)) * 16
	}
	return int64(len(t.Mains)+len(t.offs)) * 4
}

// SizeWith returns the Size after recs are appended.
func (t *Table) SizeWith(recs []Entry) int64 {
	all := int64(t.Len() + len(recs))
	if t.Sorted {
		return all * 16
	}
	next, subs := t.first+int64(len(t.Mains)), int64(0)
	if n := len(t.Mains); n > 0 {
		subs = int64(len(t.offs)) - int64(t.Mains[n-1])
	} else if len(recs) > 0 {
		next = recs[0].Main
	}
	mains := int64(len(t.Mains))
	for i := range recs {
		switch r := &recs[i]; {
		case r.Main >= next && r.Sub == 0 && r.Main-next <= maxGap:
			mains += r.Main - next + 1
			next, subs = r.Main+1, 1
		case r.Main < next && int64(r.Sub) == subs:
			subs++
		default:
			return all * 16
		}
	}
	return (mains + all) * 4
}

// Encode appends the encoding that FileTable reads to b.
func (t *Table) Encode(b []byte) []byte {
	if t.Sorted {
		for _, e := range t.Sparse {
			b = LE.AppendUint64(b, uint64(e.Main))
			b = LE.AppendUint32(b, e.Sub)
			b = LE.AppendUint32(b, e.Off)
		}
		return b
	}
	for _, n := range t.Mains {
		b = LE.AppendUint32(b, n)
	}
	for _, off := range t.offs {
		b = LE.AppendUint32(b, off)
	}
	return b
}

// FileTable is the locator of a sealed segment: the encoded table as it lies in the file. The bytes
// were checked when the segment was opened, but may be a mapping whose file is damaged since: no
// value read from them is trusted to be in bounds.
type FileTable struct {
	first   int64
	Mains   []byte // 4 bytes each
	Offs    []byte // 4 bytes each
	Sparse  []byte // 16 bytes each
	records int
	Sorted  bool
	// fences are the revisions of the records fenced apart in a sparse table, in memory; see Fence.
	fences []kv.Rev
}

// fenced is the number of records from one fence to the next: a page of them.
const fenced = 4096 / 16

// Fence keeps some revisions of a sparse table in memory, for Locate.
func (t *FileTable) Fence() {
	for i := 0; t.Sorted && i < t.records; i += fenced {
		t.fences = append(t.fences, t.Rev(i))
	}
}

// Locate is Find that first asks resident for every part of the table that it reads, and that
// Offset reads for the record and those next to it: n bytes at off. ok is false if resident returns
// false, or if there is no record.
func (t *FileTable) Locate(rev kv.Rev, resident func(off, n int) bool) (i int, ok bool) {
	if t.Sorted {
		after := sort.Search(len(t.fences), func(k int) bool { return rev.Less(t.fences[k]) })
		from := max((after-1)*fenced-1, 0)
		part := min(after*fenced+1, t.records) - from
		if after == 0 || !resident(16*from, 16*part) {
			return 0, false
		}
		i = from + sort.Search(part, func(k int) bool { return !t.Rev(from + k).Less(rev) })
		return i, i < from+part && t.Rev(i) == rev
	}
	main, n := rev.Main-t.first, int64(len(t.Mains)/4)
	if main < 0 || main >= n || !resident(int(4*main), int(4*min(2, n-main))) {
		return 0, false
	}
	from, to := t.span(rev.Main)
	if rev.Sub < 0 || rev.Sub >= int64(to-from) {
		return 0, false
	}
	i = from + int(rev.Sub)
	first := max(i-1, 0)
	return i, resident(len(t.Mains)+4*first, 4*(min(i+2, t.records)-first))
}

// Len returns the number of records.
func (t *FileTable) Len() int { return t.records }

// Offset returns where record i begins.
func (t *FileTable) Offset(i int) uint32 {
	if t.Sorted {
		return LE.Uint32(t.Sparse[16*i+12:])
	}
	return LE.Uint32(t.Offs[4*i:])
}

// Rev returns the revision of record i of a sparse table.
func (t *FileTable) Rev(i int) kv.Rev {
	b := t.Sparse[16*i : 16*i+12]
	return kv.Rev{Main: int64(LE.Uint64(b)), Sub: int64(LE.Uint32(b[8:]))}
}

func (t *FileTable) span(main int64) (from, to int) {
	n := int64(len(t.Mains) / 4)
	switch i := main - t.first; {
	case i < 0 || n == 0:
		return 0, 0
	case i >= n:
		return t.records, t.records
	case i+1 == n:
		from, to = int(LE.Uint32(t.Mains[4*i:])), t.records
	default:
		from, to = int(LE.Uint32(t.Mains[4*i:])), int(LE.Uint32(t.Mains[4*i+4:]))
	}
	to = min(to, t.records)
	return min(from, to), to
}

// Is reports whether record i is the record at rev according to the table.
func (t *FileTable) Is(i int, rev kv.Rev) bool {
	if t.Sorted {
		return t.Rev(i) == rev
	}
	return t.Find(rev) == i
}

// Find returns the number of the record at rev, -1 if there is none.
func (t *FileTable) Find(rev kv.Rev) int {
	if t.Sorted {
		i := t.Ceil(rev)
		if i == t.records || t.Rev(i) != rev {
			return -1
		}
		return i
	}
	from, to := t.span(rev.Main)
	if rev.Sub < 0 || rev.Sub >= int64(to-from) {
		return -1
	}
	return from + int(rev.Sub)
}

// Ceil returns the number of the first record at or above rev, Len() if there is none.
func (t *FileTable) Ceil(rev kv.Rev) int {
	if t.Sorted {
		return sort.Search(t.records, func(i int) bool { return !t.Rev(i).Less(rev) })
	}
	from, to := t.span(rev.Main)
	return from + int(min(max(rev.Sub, 0), int64(to-from)))
}
