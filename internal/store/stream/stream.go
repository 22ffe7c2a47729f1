package stream

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

const (
	// MaxItem limits a record, and the key and value of a meta record: it is the limit of history.
	MaxItem = 1<<28 - 1
	// maxItemHead is the largest size of the head of an item, before its data.
	maxItemHead = 1 + 4*binary.MaxVarintLen64
	// streamPiece is approximately how many bytes to encode at a time, and the most memory to
	// allocate at once for bytes that have not arrived yet.
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

// ErrDamaged means that the bytes are not a snapshot, or not the snapshot that was sent.
var ErrDamaged = errors.New("stream: damaged snapshot stream")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrDamaged, fmt.Sprintf(format, args...))
}

// Content encodes the content of a snapshot piece by piece: each call appends the next piece to a
// buffer. The zero value is an empty content.
type Content struct {
	sum            uint32
	records, metas uint64
	time           int64 // of the last record
}

// AppendRecord appends a record.
func (c *Content) AppendRecord(b []byte, at history.Stamp, tombstone bool, data []byte) []byte {
	kind, n := itemPut, len(b)
	if tombstone {
		kind = itemTombstone
	}
	b = append(b, kind)
	b = binary.AppendUvarint(b, uint64(at.Rev.Main))
	b = binary.AppendUvarint(b, uint64(at.Rev.Sub))
	b = binary.AppendVarint(b, at.Time-c.time)
	b = binary.AppendUvarint(b, uint64(len(data)))
	c.time = at.Time
	b = append(b, data...)
	c.records++
	c.sum = crc32.Update(c.sum, castagnoli, b[n:])
	return b
}

// AppendMeta appends a meta record.
func (c *Content) AppendMeta(b []byte, m *history.Meta) []byte {
	n := len(b)
	b = append(b, itemMeta, m.Bucket)
	b = binary.AppendUvarint(b, uint64(len(m.Key)))
	b = binary.AppendUvarint(b, uint64(len(m.Value)))
	b = append(append(b, m.Key...), m.Value...)
	c.metas++
	c.sum = crc32.Update(c.sum, castagnoli, b[n:])
	return b
}

// AppendEnd appends the end of the content. Nothing may follow it.
func (c *Content) AppendEnd(b []byte) []byte {
	n := len(b)
	b = append(b, itemEnd)
	b = le.AppendUint64(le.AppendUint64(b, c.records), c.metas)
	return le.AppendUint32(b, crc32.Update(c.sum, castagnoli, b[n:]))
}

// Count returns the numbers of records and of meta records so far.
func (c *Content) Count() (records, metas uint64) { return c.records, c.metas }

// Encoder is the content of a snapshot as an io.Reader: the records, the meta records, the end.
type Encoder struct {
	sc   *history.Scanner
	meta []history.Meta
	// Pace, if set, may wait before the Encoder reads n bytes. Its error ends the stream.
	Pace func(n int) error

	buf     []byte
	at      int // number of bytes of buf that were read
	content Content
	ended   bool
	err     error
}

// NewEncoder returns an Encoder of the records of a scanner, and of meta records.
func NewEncoder(sc *history.Scanner, meta []history.Meta) *Encoder {
	return &Encoder{sc: sc, meta: meta}
}

// Read implements io.Reader.
func (e *Encoder) Read(p []byte) (int, error) {
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

// Records returns the number of records so far.
func (e *Encoder) Records() uint64 { return e.content.records }

// fill encodes the next piece.
func (e *Encoder) fill() error {
	if e.ended {
		return io.EOF
	}
	b := e.buf[:0]
	if cap(b) > 4*streamPiece {
		b = nil
	}
	for len(b) < streamPiece && e.sc.Next() {
		b = e.content.AppendRecord(b, e.sc.Stamp(), e.sc.Tombstone(), e.sc.Data())
	}
	if err := e.sc.Err(); err != nil {
		return err
	}
	for len(b) < streamPiece && len(e.meta) > 0 {
		b = e.content.AppendMeta(b, &e.meta[0])
		e.meta = e.meta[1:]
	}
	if len(b) < streamPiece {
		b = e.content.AppendEnd(b)
		e.ended = true
	}
	e.buf, e.at = b, 0
	if e.Pace != nil {
		return e.Pace(len(b))
	}
	return nil
}

// Item is one part of a stream: a record, or with a zero Rev a meta record.
type Item struct {
	history.Stamp
	Tombstone bool
	Data      []byte // valid until the next item
	Meta      history.Meta
}

// Decoder reads the content of a snapshot. The items that Next returned are valid as a whole only
// after it has returned io.EOF.
type Decoder struct {
	r              *bufio.Reader
	data           []byte
	sum            uint32
	records, metas uint64
	bytes          int64
	time           int64 // of the last record
}

// NewDecoder returns a Decoder of the bytes of r.
func NewDecoder(r io.Reader) *Decoder { return &Decoder{r: bufio.NewReaderSize(r, streamPiece)} }

// Read returns how many records, meta records and bytes were decoded.
func (d *Decoder) Read() (records, metas uint64, bytes int64) { return d.records, d.metas, d.bytes }

// Next returns the next item, and io.EOF after a complete stream.
func (d *Decoder) Next() (it Item, err error) {
	head, err := d.r.Peek(maxItemHead)
	if len(head) == 0 || err != nil && err != io.EOF {
		return it, unexpected(err)
	}
	n := 1
	number := func() uint64 {
		v, k := binary.Uvarint(head[n:])
		if k <= 0 {
			err = damaged("a number at offset %d", d.bytes)
			return 0
		}
		n += k
		return v
	}
	err = nil
	switch kind := head[0]; kind {
	case itemPut, itemTombstone:
		main, sub, delta, size := number(), number(), number(), number()
		d.time += int64(delta>>1) ^ -int64(delta&1)
		if err == nil && (main == 0 || main > 1<<62 || sub > 1<<31 || d.time < 0 ||
			d.time > kv.MaxTime || size > MaxItem) {
			err = damaged("record of revision %d.%d and time %d with %d bytes", main,
				sub, d.time, size)
		}
		if err == nil {
			err = d.take(n, int(size))
		}
		d.records++
		at := history.Stamp{Rev: kv.Rev{Main: int64(main), Sub: int64(sub)}, Time: d.time}
		return Item{Stamp: at, Tombstone: kind == itemTombstone, Data: d.data}, err
	case itemMeta:
		if len(head) < 2 {
			return it, io.ErrUnexpectedEOF
		}
		bucket := head[1]
		n++
		key, value := number(), number()
		if err == nil && (key > MaxItem || value > MaxItem || key+value > MaxItem) {
			err = damaged("meta record with %d and %d bytes", key, value)
		}
		if err == nil {
			err = d.take(n, int(key+value))
		}
		if err != nil {
			return it, err
		}
		d.metas++
		own := append([]byte(nil), d.data...)
		return Item{Meta: history.Meta{Bucket: bucket, Key: own[:key:key], Value: own[key:]}}, nil
	case itemEnd:
		return it, d.end(head)
	}
	return it, damaged("an item of unknown kind at offset %d", d.bytes)
}

// take reads n bytes that the caller has peeked at, and size more bytes into data. The peeked bytes
// are invalid afterwards.
func (d *Decoder) take(n, size int) error {
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
func (d *Decoder) end(head []byte) error {
	if len(head) < endSize {
		return io.ErrUnexpectedEOF
	}
	records, metas := le.Uint64(head[1:]), le.Uint64(head[9:])
	sum := crc32.Update(d.sum, castagnoli, head[:endSize-4])
	switch {
	case le.Uint32(head[endSize-4:]) != sum:
		return damaged("checksum of %d records and %d bytes", d.records, d.bytes)
	case records != d.records || metas != d.metas:
		return damaged("%d records and %d meta records arrived, %d and %d were sent", d.records,
			d.metas, records, metas)
	}
	_, _ = d.r.Discard(endSize)
	switch _, err := d.r.ReadByte(); err {
	case io.EOF:
		return io.EOF
	case nil:
		return damaged("bytes after the end")
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
