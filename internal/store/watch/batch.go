package watch

import (
	"bytes"
	"encoding/binary"
	"sort"

	"vigil/internal/kv"
)

// batch holds the events of whole revisions that are delivered together.
type batch struct {
	last   int64 // all events up to this revision are in this batch or in earlier ones
	head   int64 // the newest revision of the store, for watchers that are behind; 0 for live ones
	events []kv.Event
	// want holds for each event the encodings that a watcher needs.
	want []want
	// plain and prev are the encoded events, without and with prev_kv; nil where not needed. An
	// event without a prev_kv has the same bytes in both.
	plain, prev [][]byte
}

type want uint8

const (
	wantPlain want = 1 << iota
	wantPrev
)

// begin makes b the batch of events, reusing its memory.
func (b *batch) begin(last int64, events []kv.Event) {
	*b = batch{last: last, events: events, want: b.want[:0]}
	if cap(b.want) < len(events) {
		b.want = make([]want, len(events))
		return
	}
	b.want = b.want[:len(events)]
	clear(b.want)
}

// end releases everything but a little memory for the next batch.
func (b *batch) end() { *b = batch{want: reuse(b.want, 4096)} }

// arena allocates memory for encoded events. Events that all go to the same watchers share blocks. Otherwise each event
// has memory of its own, so that a queue keeps nothing alive that it is not charged for.
type arena struct {
	block []byte
	size  int // of a block; 0 gives each event its own
}

const arenaBlock = 64 << 10

func (a *arena) alloc(n int) []byte {
	if n > a.size/4 {
		return make([]byte, 0, n)
	}
	if cap(a.block)-len(a.block) < n {
		a.block = make([]byte, 0, a.size)
	}
	at := len(a.block)
	a.block = a.block[:at+n]
	return a.block[at : at : at+n]
}

// largeEvent is the size from which memory is not cleared before it is filled.
const largeEvent = 32 << 10

// encode returns the encoded mvccpb.Event of e; prev is an encoded mvccpb.KeyValue or nil.
func (a *arena) encode(e *kv.Event, prev []byte) []byte {
	const fieldType, fieldKV, fieldPrev = 1 << 3, 2<<3 | 2, 3<<3 | 2
	n := 1 + uvarintLen(len(e.KV)) + len(e.KV)
	if e.Delete {
		n += 2
	}
	if prev != nil {
		n += 1 + uvarintLen(len(prev)) + len(prev)
	}
	var b []byte
	if n < largeEvent {
		b = a.alloc(n)
	} else {
		var room [2 + 2*(1+binary.MaxVarintLen64)]byte
		b = room[:0]
	}
	if e.Delete {
		b = append(b, fieldType, 1)
	}
	b = append(b, fieldKV)
	b = binary.AppendUvarint(b, uint64(len(e.KV)))
	if n >= largeEvent {
		at := len(b)
		if prev != nil {
			b = binary.AppendUvarint(append(b, fieldPrev), uint64(len(prev)))
		}
		return bytes.Join([][]byte{b[:at], e.KV, b[at:], prev}, nil)
	}
	b = append(b, e.KV...)
	if prev != nil {
		b = append(b, fieldPrev)
		b = binary.AppendUvarint(b, uint64(len(prev)))
		b = append(b, prev...)
	}
	return b
}

func uvarintLen(n int) int {
	l := 1
	for ; n >= 0x80; n >>= 7 {
		l++
	}
	return l
}

// wireSize is the size of an encoded event in a response.
func wireSize(event []byte) int64 {
	return int64(1 + uvarintLen(len(event)) + len(event))
}

// headerSize is the approximate size of a response without its events.
const headerSize = 48

// variant holds the events of a batch for the watchers of one target that have the same flags.
type variant struct {
	built  bool
	failed bool // an event lacks its encoding
	batch  *batch
	events [][]byte
	first  int32   // batch index of events[0], if picks is nil
	picks  []int32 // batch indexes of events
	chunks []chunk
}

// chunk holds the part of a variant that one response carries: whole revisions.
type chunk struct {
	events [][]byte
	bytes  int64 // on the wire, without the header
	first  int64 // revision of the first event
	rev    int64 // for the header
}

func (v *variant) rev(k int) int64 {
	i := v.first + int32(k)
	if v.picks != nil {
		i = v.picks[k]
	}
	return v.batch.events[i].Rev.Main
}

// build selects the events of the batch among h that pass the filters in f. It resets v.
func (v *variant) build(b *batch, h *hits, f flags, o *Options) {
	*v = variant{built: true, batch: b, chunks: v.chunks[:0]}
	from := b.plain
	if f&prevKV != 0 {
		from = b.prev
	}
	n, dels := h.n, h.n-h.puts
	if f&noPut != 0 {
		n -= h.puts
	}
	if f&noDelete != 0 {
		n -= dels
	}
	if n <= 0 {
		return
	}
	if n == h.n && h.picks == nil && shares(n, len(b.events)) {
		v.first, v.events = h.first, from[h.first:h.first+n:h.first+n]
	} else {
		v.events, v.picks = make([][]byte, 0, n), make([]int32, 0, n)
		for k := range h.n {
			i := h.pick(k)
			if b.events[i].Delete && f&noDelete != 0 || !b.events[i].Delete && f&noPut != 0 {
				continue
			}
			v.events, v.picks = append(v.events, from[i]), append(v.picks, i)
		}
	}
	for _, e := range v.events {
		if e == nil {
			v.failed = true
			return
		}
	}
	v.chunks = v.split(0, o, v.chunks)
}

// shares reports whether n of all events may be a slice of the batch's array, which the slice keeps alive.
func shares(n int32, all int) bool { return all <= 16 || int(n) >= all/4 }

// split appends to dst the chunks of the events from the k-th on.
func (v *variant) split(k int, o *Options, dst []chunk) []chunk {
	var c chunk
	from, revs := k, 0
	for k < len(v.events) {
		rev, end, bytes := v.rev(k), k, int64(0)
		for end < len(v.events) && v.rev(end) == rev {
			bytes += wireSize(v.events[end])
			end++
		}
		if k > from && (c.bytes+bytes > o.ResponseBytes || revs >= o.ResponseRevisions) {
			c.events, c.rev = v.events[from:k:k], max(rev-1, v.batch.head)
			dst = append(dst, c)
			c, from, revs = chunk{}, k, 0
		}
		if k == from {
			c.first = rev
		}
		c.bytes += bytes
		revs++
		k = end
	}
	if k > from {
		c.events, c.rev = v.events[from:k:k], max(v.batch.last, v.batch.head)
		dst = append(dst, c)
	}
	return dst
}

// after returns the number of events before revision next.
func (v *variant) after(next int64) int {
	return sort.Search(len(v.events), func(k int) bool { return v.rev(k) >= next })
}
