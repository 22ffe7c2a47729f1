package history

import (
	"sort"

	"vigil/internal/kv"
)

// maxGap is the longest run of absent main revisions that a dense table bridges.
const maxGap = 64

// locator finds records of one segment: they are numbered from 0 in the order of their revisions,
// and each has an offset.
type locator interface {
	// find returns the number of the record at rev, -1 if there is none.
	find(rev kv.Rev) int
	// ceil returns the number of the first record at or above rev, len() if there is none.
	ceil(rev kv.Rev) int
	// offset returns where record i begins.
	offset(i int) uint32
	len() int
}

// table is a locator that grows. What was added never changes, so that a copy of the struct stays a
// true picture while the original grows.
//
// It is dense as long as the revisions are: main revisions without a long gap, each with subs from 0
// on without a hole. Then a lookup is two array reads. The first record that breaks this makes it
// sparse: sorted entries and a binary search.
type table struct {
	first  int64
	mains  []uint32 // the number of the first record at main revision first+i or above
	offs   []uint32
	sparse []entry
	// sorted is set if sparse is in use and mains and offs are not.
	sorted bool
}

type entry struct {
	main int64
	sub  uint32
	off  uint32
}

func (e *entry) rev() kv.Rev { return kv.Rev{Main: e.main, Sub: int64(e.sub)} }

func (t *table) len() int {
	if t.sorted {
		return len(t.sparse)
	}
	return len(t.offs)
}

func (t *table) offset(i int) uint32 {
	if t.sorted {
		return t.sparse[i].off
	}
	return t.offs[i]
}

// add appends a record above all others.
func (t *table) add(rev kv.Rev, off uint32) {
	if !t.sorted && !t.addDense(rev, off) {
		t.toSparse()
	}
	if t.sorted {
		t.sparse = append(t.sparse, entry{rev.Main, uint32(rev.Sub), off})
	}
}

func (t *table) addDense(rev kv.Rev, off uint32) bool {
	n := len(t.offs)
	if n == 0 {
		t.first = rev.Main
	}
	next := t.first + int64(len(t.mains)) // the first main that is not in the table
	switch {
	case rev.Main >= next:
		if rev.Sub != 0 || rev.Main-next > maxGap {
			return false
		}
		for ; next <= rev.Main; next++ {
			t.mains = append(t.mains, uint32(n))
		}
	case rev.Sub != int64(n)-int64(t.mains[len(t.mains)-1]):
		return false
	}
	t.offs = append(t.offs, off)
	return true
}

func (t *table) toSparse() {
	t.sparse = make([]entry, 0, 2*len(t.offs)+1)
	for i, from := range t.mains {
		to := uint32(len(t.offs))
		if i+1 < len(t.mains) {
			to = t.mains[i+1]
		}
		for n := from; n < to; n++ {
			t.sparse = append(t.sparse, entry{t.first + int64(i), n - from, t.offs[n]})
		}
	}
	t.sorted, t.mains, t.offs = true, nil, nil
}

// span returns the numbers of the records at a main revision of a dense table.
func (t *table) span(main int64) (from, to int) {
	switch i := main - t.first; {
	case i < 0 || len(t.mains) == 0:
		return 0, 0
	case i >= int64(len(t.mains)):
		return len(t.offs), len(t.offs)
	case i+1 == int64(len(t.mains)):
		return int(t.mains[i]), len(t.offs)
	default:
		return int(t.mains[i]), int(t.mains[i+1])
	}
}

func (t *table) find(rev kv.Rev) int {
	if t.sorted {
		i := t.ceil(rev)
		if i == len(t.sparse) || t.sparse[i].rev() != rev {
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

func (t *table) ceil(rev kv.Rev) int {
	if t.sorted {
		return sort.Search(len(t.sparse), func(i int) bool { return !t.sparse[i].rev().Less(rev) })
	}
	from, to := t.span(rev.Main)
	return from + int(min(max(rev.Sub, 0), int64(to-from)))
}

// size returns the bytes of the encoded table.
func (t *table) size() int64 {
	if t.sorted {
		return int64(len(t.sparse)) * 16
	}
	return int64(len(t.mains)+len(t.offs)) * 4
}

// sizeWith returns what size will return once recs were added.
func (t *table) sizeWith(recs []entry) int64 {
	all := int64(t.len() + len(recs))
	if t.sorted {
		return all * 16
	}
	next, subs := t.first+int64(len(t.mains)), int64(0)
	if n := len(t.mains); n > 0 {
		subs = int64(len(t.offs)) - int64(t.mains[n-1])
	} else if len(recs) > 0 {
		next = recs[0].main
	}
	mains := int64(len(t.mains))
	for i := range recs {
		switch r := &recs[i]; {
		case r.main >= next && r.sub == 0 && r.main-next <= maxGap:
			mains += r.main - next + 1
			next, subs = r.main+1, 1
		case r.main < next && int64(r.sub) == subs:
			subs++
		default:
			return all * 16
		}
	}
	return (mains + all) * 4
}

// append appends the encoding that fileTable reads.
func (t *table) append(b []byte) []byte {
	if t.sorted {
		for _, e := range t.sparse {
			b = le.AppendUint64(b, uint64(e.main))
			b = le.AppendUint32(b, e.sub)
			b = le.AppendUint32(b, e.off)
		}
		return b
	}
	for _, n := range t.mains {
		b = le.AppendUint32(b, n)
	}
	for _, off := range t.offs {
		b = le.AppendUint32(b, off)
	}
	return b
}

// fileTable is the locator of a sealed segment: the encoded table as it lies in the file. The bytes
// were checked when the segment was opened, but may be a mapping whose file is damaged since: no
// value read from them is trusted to be in bounds.
type fileTable struct {
	first   int64
	mains   []byte // 4 bytes each
	offs    []byte // 4 bytes each
	sparse  []byte // 16 bytes each
	records int
	sorted  bool
}

func (t *fileTable) len() int { return t.records }

func (t *fileTable) offset(i int) uint32 {
	if t.sorted {
		return le.Uint32(t.sparse[16*i+12:])
	}
	return le.Uint32(t.offs[4*i:])
}

func (t *fileTable) rev(i int) kv.Rev {
	b := t.sparse[16*i : 16*i+12]
	return kv.Rev{Main: int64(le.Uint64(b)), Sub: int64(le.Uint32(b[8:]))}
}

func (t *fileTable) span(main int64) (from, to int) {
	n := int64(len(t.mains) / 4)
	switch i := main - t.first; {
	case i < 0 || n == 0:
		return 0, 0
	case i >= n:
		return t.records, t.records
	case i+1 == n:
		from, to = int(le.Uint32(t.mains[4*i:])), t.records
	default:
		from, to = int(le.Uint32(t.mains[4*i:])), int(le.Uint32(t.mains[4*i+4:]))
	}
	to = min(to, t.records)
	return min(from, to), to
}

// is reports whether record i is the one at rev, as far as the table says.
func (t *fileTable) is(i int, rev kv.Rev) bool {
	if t.sorted {
		return t.rev(i) == rev
	}
	return t.find(rev) == i
}

func (t *fileTable) find(rev kv.Rev) int {
	if t.sorted {
		i := t.ceil(rev)
		if i == t.records || t.rev(i) != rev {
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

func (t *fileTable) ceil(rev kv.Rev) int {
	if t.sorted {
		return sort.Search(t.records, func(i int) bool { return !t.rev(i).Less(rev) })
	}
	from, to := t.span(rev.Main)
	return from + int(min(max(rev.Sub, 0), int64(to-from)))
}
