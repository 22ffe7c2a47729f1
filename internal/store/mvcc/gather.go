package mvcc

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"
	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/mvcc/meter"
	"vigil/internal/store/mvcc/record"
	"vigil/internal/store/ration"
)

// answerMemory is the memory of one read's answer, which it borrows from a budget.
type answerMemory struct {
	budget *ration.Budget
	ctx    context.Context // names the holders
	loan   *ration.Loan    // nil until it is needed
	room   int             // the part of loan for records that are read one after another
	done   bool
}

// borrow returns the loan.
func (m *answerMemory) borrow() *ration.Loan {
	if m.loan == nil {
		m.loan = m.budget.Borrow(m.ctx)
	}
	return m.loan
}

// charge counts the memory of a record of n bytes before the read, unless n is small. The next
// record uses the same memory. whole is the probable size of the answer without it, 0 if unknown.
func (m *answerMemory) charge(n int, whole int64) error {
	if n <= max(m.room, tempSize) {
		return nil
	}
	if whole > 0 {
		whole += int64(n)
	}
	if err := m.borrow().Charge(int64(n-m.room), whole); err != nil {
		return err
	}
	m.room = n
	return nil
}

// abandon returns the memory of a read that failed.
func (m *answerMemory) abandon() {
	if m.loan != nil && !m.done {
		m.loan.Drop()
		m.loan.Abandon()
	}
}

// beginRead begins a read of the newest commit.
func (sc *scratch) beginRead(ctx context.Context, s *Store) *view {
	sc.view = s.read()
	if s.opts.Ranges != nil {
		sc.memory.budget, sc.memory.ctx = s.opts.Ranges, ctx
		sc.view.memory = &sc.memory
	}
	return &sc.view
}

// again reports whether a read that ended with err is to begin again, on the newest state: an
// overtaken read begins at once, a read without memory for its result when there is some. Until
// then it holds nothing of the state it read, because that keeps memory alive too.
func (sc *scratch) again(ctx context.Context, err error) (bool, error) {
	loan := sc.memory.loan
	switch err {
	case errAgain:
		if loan != nil {
			loan.Drop()
		}
		sc.memory.room = 0
		err = ctx.Err()
	case ration.ErrFull:
		*sc = scratch{memory: sc.memory}
		sc.memory.room = 0
		err = loan.Wait(ctx)
	case nil:
		if loan != nil {
			loan.Finish()
		}
		sc.memory.done = true
		return false, nil
	default:
		return false, err
	}
	return err == nil, err
}

const (
	// shortSize is the size in bytes up to which records stay in one buffer.
	shortSize = 32 << 10
	// tempSize is the number of bytes of records to read before copying them into pieces. A larger
	// record is read after its memory is counted.
	tempSize = 64 << 10
	// maxResult is the largest answer that a member can send to a client, in bytes.
	maxResult = math.MaxInt32
	// unknown stands for an unknown number of keys.
	unknown = -1
	// frameTag is the tag of field 2, which holds the records of a response.
	frameTag = 2<<3 | 2
)

// gather collects the records of an answer: a few in one buffer, many in pieces if the read may
// borrow. It reads records into kvs, or into the last piece; records that do not fit into the piece
// it reads into temp, and copies them from there.
type gather struct {
	memory *answerMemory
	kvs    *kv.Records
	temp   *kv.Records
	long   *kv.LongRecords // nil while everything is in kvs
	room   []byte          // the free part of the last piece
	// begun is the size of the records up to and including the one that is being moved into pieces.
	begun int

	// full is the number of keys that the answer will have; unknown if nobody knows it, 0 if it has
	// not been determined yet.
	full int64
	last string // the last key

	// meter, if set, limits the answer; counted is the number of bytes of kvs that it has counted.
	meter   *meter.Meter
	counted int
}

func (g *gather) init(l *answerMemory, kvs *kv.Records, sc *scratch) {
	g.memory, g.kvs, g.temp = l, kvs, &sc.recs
}

// fetch appends the records at revs, which are in the order of the answer.
func (g *gather) fetch(ctx context.Context, hist *history.View, revs []kv.Rev) error {
	need := 0 // the size of the next record, if there was no room for it
	for len(revs) > 0 {
		if need > 0 && g.memory != nil {
			if err := g.admit(need); err != nil {
				return err
			}
		}
		if g.long != nil && need == 0 {
			n, err := g.fill(hist, revs)
			if err != nil {
				return err
			}
			if revs = revs[n:]; len(revs) == 0 {
				break
			}
		}
		to, size := g.kvs, tempSize
		n := len(revs)
		if g.long != nil {
			n = 1 // it goes into two pieces; then there is room for others
			to = g.temp
			to.Buf, to.Ends = to.Buf[:0], to.Ends[:0]
		} else {
			if to.Ends == nil {
				to.Ends = make([]int, 0, len(revs))
			}
			size += len(to.Buf)
			if g.memory != nil {
				size = shortSize
			}
		}
		was := to.Len()
		if was == 0 && n > 8 && g.long == nil {
			// A few records show how much room the others will take.
			n = 4
		}
		var err error
		if need, err = hist.GetSome(revs[:n], max(size, len(to.Buf)+need), to); err != nil {
			return fmt.Errorf("mvcc: reading %d records: %w", len(revs), err)
		}
		revs = revs[to.Len()-was:]
		if err := g.take(); err != nil {
			return err
		}
		if len(revs) == 0 {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if g.long == nil && to.Len() > 0 &&
			cap(to.Buf)-len(to.Buf) < max(need, min(tempSize, len(to.Buf))) {
			// The first records may not represent the others: grow to four times the present size
			// at most.
			to.Buf = slices.Grow(to.Buf,
				max(need, min(len(revs)*len(to.Buf)/to.Len()*9/8, 3*len(to.Buf))))
		}
	}
	return nil
}

// fill appends records to the last piece as far as there is room, and returns how many.
func (g *gather) fill(hist *history.View, revs []kv.Rev) (n int, err error) {
	b, n, err := hist.GetFramed(revs, frameTag, g.room[:0:len(g.room)])
	if err != nil {
		return n, fmt.Errorf("mvcc: reading %d records: %w", len(revs), err)
	}
	g.room = g.room[len(b):]
	g.long.Bytes += len(b)
	g.long.N += n
	g.begun = g.long.Bytes
	return n, nil
}

// admit counts the memory for a record of n bytes, which will be in pieces.
func (g *gather) admit(n int) error {
	if g.long == nil {
		if err := g.lengthen(); err != nil {
			return err
		}
	}
	return g.memory.charge(n, g.whole(g.long.Bytes+record.FrameSize(n)+n, g.long.N+1))
}

// buffer returns the list to which the caller may append n records of about size bytes in all; take
// must follow.
func (g *gather) buffer(n, size int) (*kv.Records, error) {
	if g.long == nil && g.memory != nil && len(g.kvs.Buf)+size > shortSize {
		if err := g.lengthen(); err != nil {
			return nil, err
		}
	}
	to := g.kvs
	if g.long != nil {
		if err := g.memory.charge(size, g.whole(g.long.Bytes+size, g.long.N+n)); err != nil {
			return nil, err
		}
		to = g.temp
		to.Buf, to.Ends = to.Buf[:0], to.Ends[:0]
	}
	to.Buf, to.Ends = slices.Grow(to.Buf, size), slices.Grow(to.Ends, n)
	return to, nil
}

// take takes over the records that were appended to the list in use.
func (g *gather) take() error {
	if g.meter != nil {
		n := len(g.kvs.Buf) - g.counted
		g.counted = len(g.kvs.Buf)
		if err := g.meter.Read(int64(n)); err != nil {
			return err
		}
	}
	if g.long != nil {
		return g.frame(g.temp)
	}
	if g.memory == nil || len(g.kvs.Buf) < shortSize &&
		g.expect(len(g.kvs.Buf), len(g.kvs.Ends)) < shortSize {
		return nil
	}
	return g.lengthen()
}

// expect returns the probable size of an answer of which the first n records take size bytes, 0 if
// nothing is known.
func (g *gather) expect(size, n int) int64 {
	if n == 0 || g.full < int64(n) {
		return 0
	}
	return int64(float64(size) / float64(n) * float64(g.full))
}

// whole returns approximately how many bytes the pieces of an answer take of which the first n
// records take size bytes; 0 if nothing is known.
func (g *gather) whole(size, n int) int64 {
	switch expect := g.expect(size, n); {
	case expect == 0:
		return 0
	case int64(n) == g.full:
		return (expect + ration.PieceSize - 1) / ration.PieceSize * ration.PieceSize
	default:
		return expect + expect/16 + ration.PieceSize
	}
}

// lengthen begins to use pieces.
func (g *gather) lengthen() error {
	g.long = &kv.LongRecords{Lender: g.memory.borrow()}
	if g.kvs.Len() == 0 {
		return nil
	}
	return g.frame(g.kvs)
}

// frame moves records into pieces.
func (g *gather) frame(recs *kv.Records) error {
	var head [1 + binary.MaxVarintLen64]byte
	head[0] = frameTag
	from := 0
	for _, to := range recs.Ends {
		b := recs.Buf[from:to]
		from = to
		g.long.N++
		size := record.FrameSize(len(b)) + len(b)
		g.begun = g.long.Bytes + size
		if size <= len(g.room) {
			g.room[0] = frameTag
			n := 1 + binary.PutUvarint(g.room[1:], uint64(len(b)))
			copy(g.room[n:], b)
			g.room = g.room[size:]
			g.long.Bytes += size
			continue
		}
		if err := g.write(binary.AppendUvarint(head[:1], uint64(len(b)))); err != nil {
			return err
		}
		if err := g.write(b); err != nil {
			return err
		}
	}
	return nil
}

// write appends bytes to the pieces.
func (g *gather) write(b []byte) error {
	g.long.Bytes += len(b)
	for len(b) > 0 {
		if len(g.room) == 0 {
			if err := g.piece(); err != nil {
				return err
			}
		}
		n := copy(g.room, b)
		b, g.room = b[n:], g.room[n:]
	}
	return nil
}

// piece begins another piece.
func (g *gather) piece() error {
	if g.long.Bytes > maxResult {
		return &kv.TooLargeError{Size: int64(g.long.Bytes), Limit: maxResult}
	}
	expect := g.whole(g.begun, g.long.N)
	if expect > 0 {
		expect += int64(g.memory.room)
	}
	p, err := g.memory.loan.Piece(expect)
	if err != nil {
		return err
	}
	g.long.Pieces = append(g.long.Pieces, p)
	g.room = *p
	return nil
}

// charge counts memory that is needed while the answer is being made.
func (g *gather) charge(n int) error {
	if g.meter != nil {
		return g.meter.Read(int64(n))
	}
	if g.memory == nil {
		return nil
	}
	return g.memory.borrow().Charge(int64(n), 0)
}

// finish completes the answer's list.
func (g *gather) finish() {
	if g.long == nil {
		return
	}
	if n := len(g.long.Pieces); n > 0 {
		p := g.long.Pieces[n-1]
		*p = (*p)[:len(*p)-len(g.room)]
	}
	g.long.Last = strings.Clone(g.last) // a slow client may keep it for long
	*g.kvs = kv.Records{Long: g.long}
}
