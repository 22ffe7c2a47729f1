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
	// arena is the size of the blocks that hold most of the encoded events; 0 if each event has
	// separate memory.
	arena int
	// owned is the last copy of a part of plain or prev: targets often have the same events, and
	// can then share runs.
	owned struct {
		part, copy [][]byte
	}
}

type want uint8

const (
	wantPlain want = 1 << iota
	wantPrev
)

// begin makes b the batch of events. It reuses the memory of b.
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

// arena allocates memory for encoded events of one batch that mostly go to the same watchers. Its
// blocks are no larger than needed.
type arena struct {
	block []byte
	left  int // bytes still to be allocated
	total int // of all blocks
}

// arenaBlock is the size of a block. Events of more than a quarter of it get separate memory.
const arenaBlock = 32 << 10

// alloc returns memory for n bytes. If the arena has no bytes left it allocates them separately.
func (a *arena) alloc(n int) []byte {
	if n > a.left || n > arenaBlock/4 {
		return make([]byte, 0, n)
	}
	if cap(a.block)-len(a.block) < n {
		a.block = make([]byte, 0, min(a.left, arenaBlock))
		a.total += cap(a.block)
	}
	a.left -= n
	at := len(a.block)
	a.block = a.block[:at+n]
	return a.block[at : at : at+n]
}

// largeEvent is the size from which encode does not clear memory before it fills it.
const largeEvent = 32 << 10

// encode returns the encoded mvccpb.Event of e, in memory of a or in separate memory; prev is an
// encoded mvccpb.KeyValue or nil.
func encode(e *kv.Event, prev []byte, a *arena) []byte {
	const fieldType, fieldKV, fieldPrev = 1 << 3, 2<<3 | 2, 3<<3 | 2
	n := encodedSize(e)
	if prev != nil {
		n += 1 + uvarintLen(len(prev)) + len(prev)
	}
	var b []byte
	switch {
	case n < largeEvent && a != nil:
		b = a.alloc(n)
	case n < largeEvent:
		b = make([]byte, 0, n)
	default:
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

// encodedSize is the size of the encoded mvccpb.Event of e without a previous value.
func encodedSize(e *kv.Event) int {
	n := 1 + uvarintLen(len(e.KV)) + len(e.KV)
	if e.Delete {
		n += 2
	}
	return n
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
	// events are the encoded events, all of the batch or only the events at picks, in reused
	// memory.
	events [][]byte
	first  int32   // batch index of events[0], if picks is nil
	picks  []int32 // batch indexes of events
	chunks []chunk
	// rest holds the chunks for watchers that have seen the events before the restAt-th.
	rest   []chunk
	restAt int

	// Memory of events and picks.
	pointers [][]byte
	indexes  []int32
}

// end releases everything but a little memory for the next batch.
func (v *variant) end() {
	clear(v.chunks[:cap(v.chunks)])
	clear(v.rest[:cap(v.rest)])
	clear(v.pointers[:cap(v.pointers)])
	*v = variant{
		chunks: reuse(v.chunks, keepPeak), rest: reuse(v.rest, keepPeak),
		pointers: reuse(v.pointers, keepPeak), indexes: reuse(v.indexes, keepPeak),
	}
}

// chunk holds the part of a variant that one response carries: whole revisions. It keeps no memory
// alive but its own events, at most about twice their size: a queue may hold it for long, and is
// charged only for the events.
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
	*v = variant{built: true, batch: b, chunks: v.chunks[:0], rest: v.rest[:0],
		pointers: v.pointers[:0], indexes: v.indexes[:0]}
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
	if n == h.n && h.picks == nil {
		v.first, v.events = h.first, from[h.first:h.first+n:h.first+n]
	} else {
		for k := range h.n {
			i := h.pick(k)
			if b.events[i].Delete && f&noDelete != 0 || !b.events[i].Delete && f&noPut != 0 {
				continue
			}
			v.pointers, v.indexes = append(v.pointers, from[i]), append(v.indexes, i)
		}
		v.events, v.picks = v.pointers, v.indexes
	}
	for _, e := range v.events {
		if e == nil {
			v.failed = true
			return
		}
	}
	v.chunks = v.split(0, o, v.chunks)
}

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
			c.events, c.rev = v.own(from, k, c.bytes), max(rev-1, v.batch.head)
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
		c.events, c.rev = v.own(from, k, c.bytes), max(v.batch.last, v.batch.head)
		dst = append(dst, c)
	}
	return dst
}

// own returns the events from..to, of the given size on the wire, as a slice that keeps no others
// alive: a part of the batch's array only if these are all its events, and of the arena's blocks
// only if the events are a large part of the blocks.
func (v *variant) own(from, to int, bytes int64) [][]byte {
	part := v.events[from:to:to]
	if v.picks == nil && len(part) == len(v.batch.events) {
		return part
	}
	last := &v.batch.owned
	if len(last.part) == len(part) && &last.part[0] == &part[0] && v.picks == nil {
		return last.copy
	}
	events := append(make([][]byte, 0, len(part)), part...)
	if v.picks == nil {
		last.part, last.copy = part, events
	}
	kept := int64(v.batch.arena)
	if v.picks == nil {
		kept = min(kept, bytes+2*arenaBlock) // consecutive events are in consecutive blocks
	}
	if kept <= 2*bytes {
		return events
	}
	size := 0
	for _, e := range events {
		size += len(e)
	}
	block := make([]byte, 0, size)
	for i, e := range events {
		at := len(block)
		block = append(block, e...)
		events[i] = block[at:len(block):len(block)]
	}
	return events
}

// after returns the chunks of the events from revision next on.
func (v *variant) after(next int64, o *Options) []chunk {
	k := sort.Search(len(v.events), func(k int) bool { return v.rev(k) >= next })
	if k != v.restAt || k == 0 {
		v.rest, v.restAt = v.split(k, o, v.rest[:0]), k
	}
	return v.rest
}
