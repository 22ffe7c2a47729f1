package replica

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"vigil/internal/kv"
	"vigil/internal/store/history"
)

// docs/formats/snapshot.md has the bytes of everything here.

const (
	snapshotMagic   = "VSNP"
	snapshotVersion = 1
	headerSize      = 72
	offerSize       = 24
	answerSize      = 24

	// maxItem bounds a record, and the key and value of a meta record: what history takes.
	maxItem = 1<<28 - 1
	// maxItemHead is the most that an item takes in front of its bytes.
	maxItemHead = 1 + 3*binary.MaxVarintLen64
	// streamPiece is about how much is encoded at a time, and the most memory that is taken at once
	// for bytes that have not arrived yet.
	streamPiece = 256 << 10

	itemPut       byte = 1
	itemTombstone byte = 2
	itemMeta      byte = 3
	itemEnd       byte = 4

	endSize = 1 + 8 + 8 + 4
)

var (
	le         = binary.LittleEndian
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// errStream: what arrives is no snapshot, or not the one that was sent.
var errStream = errors.New("replica: damaged snapshot stream")

func badStream(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errStream, fmt.Sprintf(format, args...))
}

// snapshotHeader says what a stream holds. The receiver knows the base by what it offered.
type snapshotHeader struct {
	cluster uint64
	// term is that of the leader that sends.
	term uint64
	at   history.Applied
	// revision and compact are the store's.
	revision, compact int64
	// incremental: the stream holds only the records above base, for a receiver whose history up to
	// there has the hash.
	incremental bool
	base        int64
	hash        uint32
}

func (h *snapshotHeader) encode() []byte {
	b := append(make([]byte, 0, headerSize), snapshotMagic...)
	kind := byte(0)
	if h.incremental {
		kind = 1
	}
	b = append(b, snapshotVersion, kind, 0, 0)
	for _, v := range [...]uint64{h.cluster, h.term, h.at.Term, h.at.Index, uint64(h.revision), uint64(h.compact), uint64(h.base)} {
		b = le.AppendUint64(b, v)
	}
	b = le.AppendUint32(b, h.hash)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

func decodeSnapshotHeader(b []byte) (h snapshotHeader, err error) {
	switch {
	case len(b) < 8 || string(b[:4]) != snapshotMagic:
		return h, badStream("no header")
	case b[4] != snapshotVersion:
		return h, fmt.Errorf("replica: snapshot stream of version %d, this program reads %d", b[4], snapshotVersion)
	case len(b) != headerSize || le.Uint32(b[headerSize-4:]) != crc32.Checksum(b[:headerSize-4], castagnoli):
		return h, badStream("checksum of the header")
	case b[5] > 1 || b[6] != 0 || b[7] != 0:
		return h, badStream("kind %x", b[5:8])
	}
	v := func(i int) uint64 { return le.Uint64(b[8+8*i:]) }
	h = snapshotHeader{
		incremental: b[5] == 1,
		cluster:     v(0), term: v(1),
		at:       history.Applied{Term: v(2), Index: v(3)},
		revision: int64(v(4)), compact: int64(v(5)), base: int64(v(6)),
		hash: le.Uint32(b[64:]),
	}
	switch {
	case h.term == 0 || h.at.Index == 0 || h.at.Term == 0 || h.at.Term > h.term:
		return h, badStream("position %d of term %d, sent in term %d", h.at.Index, h.at.Term, h.term)
	case h.revision < 1 || h.compact < -1 || h.compact > h.revision || h.base < 0 || h.base > h.revision:
		return h, badStream("revision %d, compacted at %d, from %d", h.revision, h.compact, h.base)
	}
	return h, nil
}

// offer is what the sender asks before it sends, and answer what the receiver has.
type offer struct {
	index   uint64
	compact int64
}

type answer struct {
	// have: the receiver keeps its history up to a revision aside, and hash is its hash there, at
	// the compact revision of the offer.
	have     bool
	revision int64
	hash     uint32
	// ahead: the receiver has applied the position of the offer, and needs nothing.
	ahead bool
}

func (o offer) encode() []byte {
	b := append(make([]byte, 0, offerSize), snapshotVersion, 0, 0, 0, 0, 0, 0, 0)
	return le.AppendUint64(le.AppendUint64(b, o.index), uint64(o.compact))
}

func decodeOffer(b []byte) (offer, error) {
	if len(b) != offerSize || b[0] != snapshotVersion {
		return offer{}, fmt.Errorf("replica: snapshot offer %x", b[:min(len(b), offerSize)])
	}
	return offer{index: le.Uint64(b[8:]), compact: int64(le.Uint64(b[16:]))}, nil
}

func (a answer) encode() []byte {
	b := append(make([]byte, 0, answerSize), snapshotVersion, 0, 0, 0, 0, 0, 0, 0)
	switch {
	case a.have:
		b[1] = 1
	case a.ahead:
		b[1] = 2
	}
	b = le.AppendUint64(b, uint64(a.revision))
	return le.AppendUint64(b, uint64(a.hash))
}

func decodeAnswer(b []byte) (answer, error) {
	if len(b) != answerSize || b[0] != snapshotVersion || b[1] > 2 {
		return answer{}, fmt.Errorf("replica: answer %x to a snapshot offer", b[:min(len(b), answerSize)])
	}
	return answer{have: b[1] == 1, ahead: b[1] == 2, revision: int64(le.Uint64(b[8:])), hash: uint32(le.Uint64(b[16:]))}, nil
}

// encoder is the content of a snapshot as an io.Reader: the records, the meta records, the end.
type encoder struct {
	sc   *history.Scanner
	meta []history.Meta
	// pace, if set, is told how many bytes are ready to go, and waits or ends the stream.
	pace func(n int) error

	buf            []byte
	at             int // what of buf was read
	sum            uint32
	records, metas uint64
	ended          bool
	err            error
}

// Read implements io.Reader.
func (e *encoder) Read(p []byte) (int, error) {
	if e.at == len(e.buf) && e.err == nil {
		e.err = e.fill()
	}
	if e.at == len(e.buf) {
		return 0, e.err
	}
	n := copy(p, e.buf[e.at:])
	e.at += n
	return n, nil
}

// fill encodes the next piece.
func (e *encoder) fill() error {
	if e.ended {
		return io.EOF
	}
	b := e.buf[:0]
	if cap(b) > 4*streamPiece {
		b = nil
	}
	for len(b) < streamPiece && e.sc.Next() {
		kind := itemPut
		if e.sc.Tombstone() {
			kind = itemTombstone
		}
		rev, data := e.sc.Rev(), e.sc.Data()
		b = append(b, kind)
		b = binary.AppendUvarint(b, uint64(rev.Main))
		b = binary.AppendUvarint(b, uint64(rev.Sub))
		b = binary.AppendUvarint(b, uint64(len(data)))
		b = append(b, data...)
		e.records++
	}
	if err := e.sc.Err(); err != nil {
		return err
	}
	for len(b) < streamPiece && len(e.meta) > 0 {
		m := &e.meta[0]
		b = append(b, itemMeta, m.Bucket)
		b = binary.AppendUvarint(b, uint64(len(m.Key)))
		b = binary.AppendUvarint(b, uint64(len(m.Value)))
		b = append(append(b, m.Key...), m.Value...)
		e.meta = e.meta[1:]
		e.metas++
	}
	if len(b) < streamPiece {
		b = append(b, itemEnd)
		b = le.AppendUint64(le.AppendUint64(b, e.records), e.metas)
		b = le.AppendUint32(b, crc32.Update(e.sum, castagnoli, b))
		e.ended = true
	} else {
		e.sum = crc32.Update(e.sum, castagnoli, b)
	}
	e.buf, e.at = b, 0
	if e.pace != nil {
		return e.pace(len(b))
	}
	return nil
}

// item is one part of a stream: a record, or with rev zero a meta record.
type item struct {
	rev       kv.Rev
	tombstone bool
	data      []byte // valid until the next item
	meta      history.Meta
}

// decoder reads the content of a snapshot. What it returned counts only when end has.
type decoder struct {
	r              *bufio.Reader
	data           []byte
	sum            uint32
	records, metas uint64
	bytes          int64
}

func newDecoder(r io.Reader) *decoder { return &decoder{r: bufio.NewReaderSize(r, streamPiece)} }

// next returns the next item, and io.EOF when the stream has ended as it should.
func (d *decoder) next() (it item, err error) {
	head, err := d.r.Peek(maxItemHead)
	if len(head) == 0 || err != nil && err != io.EOF {
		return it, unexpected(err)
	}
	n := 1
	number := func() uint64 {
		v, k := binary.Uvarint(head[n:])
		if k <= 0 {
			err = badStream("a number at offset %d", d.bytes)
			return 0
		}
		n += k
		return v
	}
	err = nil
	switch kind := head[0]; kind {
	case itemPut, itemTombstone:
		main, sub, size := number(), number(), number()
		if err == nil && (main == 0 || main > 1<<62 || sub > 1<<31 || size > maxItem) {
			err = badStream("record of revision %d.%d with %d bytes", main, sub, size)
		}
		if err == nil {
			err = d.take(n, int(size))
		}
		d.records++
		return item{rev: kv.Rev{Main: int64(main), Sub: int64(sub)}, tombstone: kind == itemTombstone, data: d.data}, err
	case itemMeta:
		if len(head) < 2 {
			return it, io.ErrUnexpectedEOF
		}
		bucket := head[1]
		n++
		key, value := number(), number()
		if err == nil && (key > maxItem || value > maxItem || key+value > maxItem) {
			err = badStream("meta record with %d and %d bytes", key, value)
		}
		if err == nil {
			err = d.take(n, int(key+value))
		}
		if err != nil {
			return it, err
		}
		d.metas++
		own := append([]byte(nil), d.data...)
		return item{meta: history.Meta{Bucket: bucket, Key: own[:key:key], Value: own[key:]}}, nil
	case itemEnd:
		return it, d.end(head)
	}
	return it, badStream("an item of unknown kind at offset %d", d.bytes)
}

// take reads n bytes that were looked at and size more into data. What was looked at is gone then.
func (d *decoder) take(n, size int) error {
	head, _ := d.r.Peek(n)
	d.sum = crc32.Update(d.sum, castagnoli, head)
	_, _ = d.r.Discard(n)
	d.bytes += int64(n + size)
	if cap(d.data) > 4*streamPiece && size < streamPiece {
		d.data = nil
	}
	d.data = d.data[:0]
	for len(d.data) < size {
		from := len(d.data)
		piece := min(size-from, streamPiece)
		d.data = append(d.data, make([]byte, piece)...)
		if _, err := io.ReadFull(d.r, d.data[from:]); err != nil {
			return unexpected(err)
		}
	}
	d.sum = crc32.Update(d.sum, castagnoli, d.data)
	return nil
}

// end checks the end of the stream and that nothing follows.
func (d *decoder) end(head []byte) error {
	if len(head) < endSize {
		return io.ErrUnexpectedEOF
	}
	records, metas := le.Uint64(head[1:]), le.Uint64(head[9:])
	sum := crc32.Update(d.sum, castagnoli, head[:endSize-4])
	switch {
	case le.Uint32(head[endSize-4:]) != sum:
		return badStream("checksum of %d records and %d bytes", d.records, d.bytes)
	case records != d.records || metas != d.metas:
		return badStream("%d records and %d meta records arrived, %d and %d were sent", d.records, d.metas, records, metas)
	}
	_, _ = d.r.Discard(endSize)
	switch _, err := d.r.ReadByte(); err {
	case io.EOF:
		return io.EOF
	case nil:
		return badStream("bytes behind the end")
	default:
		return err
	}
}

func unexpected(err error) error {
	if err == nil || err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
