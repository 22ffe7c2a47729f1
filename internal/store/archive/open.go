package archive

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/stream"
)

// readPiece is the most memory that is allocated at once for bytes that have not arrived yet.
const readPiece = 256 << 10

// maxWindow is the largest window of compressed content: the most memory that its header can
// demand.
const maxWindow = 8 << 20

// Reader reads the objects of an archive. It may be used from any goroutine.
type Reader struct {
	id   Identity
	keys []age.Identity
}

// NewReader returns a Reader of the objects of an archive.
func NewReader(id Identity) *Reader { return &Reader{id: id} }

// Identity returns the identity of the archive.
func (r *Reader) Identity() *Identity { return &r.id }

// AddKeys adds the private keys of a file of age (AGE-SECRET-KEY-1..., one on a line).
func (r *Reader) AddKeys(file io.Reader) error {
	keys, err := age.ParseIdentities(io.LimitReader(file, 1<<20))
	if err != nil {
		// the error of age may have a part of a key
		return errors.New("it is not a file with private keys of age")
	}
	r.keys = append(r.keys, keys...)
	return nil
}

// HasKeys reports whether private keys were added.
func (r *Reader) HasKeys() bool { return len(r.keys) > 0 }

// Header decodes the first HeaderSize bytes of an object. It does not check the body.
func (r *Reader) Header(name string, b []byte) (Header, error) {
	h, err := parseHeader(b)
	if err == nil {
		err = r.check(&h)
	}
	if err == nil {
		err = h.checkName(name, nil)
	}
	if err != nil {
		return h, fmt.Errorf("%s: %w", name, err)
	}
	return h, nil
}

// check checks that an object belongs to the archive.
func (r *Reader) check(h *Header) error {
	if h.Archive != r.id.Archive || h.Cluster != uint64(r.id.Cluster) {
		return fmt.Errorf("%w: it belongs to archive %s of cluster %x", ErrForeign,
			h.Archive, h.Cluster)
	}
	if h.Encrypted != (len(r.id.Recipients) > 0) {
		return fmt.Errorf("%w: encrypted is %v, unlike the archive", ErrForeign, h.Encrypted)
	}
	return nil
}

// Object is an object whose bytes Open has checked.
type Object struct {
	Header Header
	name   string
	body   []byte
	keys   []age.Identity
}

// Open checks the bytes of an object. It needs no key.
func (r *Reader) Open(name string, data []byte) (*Object, error) {
	h, err := r.Header(name, data)
	if err != nil {
		return nil, err
	}
	body := data[HeaderSize:]
	switch sum := sha256.Sum256(data); {
	case int64(len(body)) != h.Body:
		err = damaged("%d bytes follow the header, not %d", len(body), h.Body)
	case sha256.Sum256(body) != h.Sum:
		err = damaged("the checksum of the content does not match")
	default:
		err = h.checkName(name, &sum)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Object{Header: h, name: name, body: body, keys: r.keys}, nil
}

// OpenPart checks the bytes of a part of a base.
func (r *Reader) OpenPart(p *Part, data []byte) (*Object, error) {
	o, err := r.Open(p.Name, data)
	if err != nil {
		return nil, err
	}
	h := &o.Header
	if int64(len(data)) != p.Size || sumText(data) != p.SHA256 || h.Kind.String() != p.Kind ||
		h.Items != p.Items || h.Content != p.Content ||
		int64(h.First) != p.After || int64(h.Last) != p.Through {
		return nil, fmt.Errorf("%s: %w: it is not the part that the manifest lists",
			p.Name, ErrForeign)
	}
	return o, nil
}

// Name returns the name of the object.
func (o *Object) Name() string { return o.name }

// content calls read with the content. read must read it to its end.
func (o *Object) content(kind Kind, read func(*bufio.Reader) (items uint64, err error)) error {
	err := o.open(kind, read)
	if err != nil && !errors.Is(err, ErrKey) && !errors.Is(err, errVisit) &&
		!errors.Is(err, ErrForeign) {
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", o.name, err)
	}
	return nil
}

// errVisit marks an error of the function that takes the content.
var errVisit = errors.New("not accepted")

// visited marks an error of the function that takes the content.
func visited(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errVisit, err)
}

func (o *Object) open(kind Kind, read func(*bufio.Reader) (uint64, error)) error {
	if o.Header.Kind != kind {
		return fmt.Errorf("%w: it holds %s, not %s", ErrForeign, o.Header.Kind, kind)
	}
	in := io.Reader(bytes.NewReader(o.body))
	if o.Header.Encrypted {
		if len(o.keys) == 0 {
			return ErrKey
		}
		plain, err := age.Decrypt(in, o.keys...)
		var none *age.NoIdentityMatchError
		if errors.As(err, &none) {
			return ErrKey
		}
		if err != nil {
			return err
		}
		in = plain
	}
	unzip, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderLowmem(true))
	if err != nil {
		return err
	}
	defer unzip.Close()
	counted := &counter{r: io.LimitReader(unzip, o.Header.Content+1)}
	items, err := read(bufio.NewReaderSize(counted, 64<<10))
	switch {
	case err != nil:
		return err
	case counted.n != o.Header.Content:
		return fmt.Errorf("the content has %d bytes, not %d", counted.n, o.Header.Content)
	case items != o.Header.Items:
		return fmt.Errorf("the content has %d items, not %d", items, o.Header.Items)
	}
	return nil
}

// counter counts the bytes that are read.
type counter struct {
	r io.Reader
	n int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// Records calls visit with each record of a records part, in their order. Data are valid during the
// call.
func (o *Object) Records(visit func(at history.Stamp, tombstone bool, data []byte) error) error {
	last := kv.Rev{}
	return o.content(KindRecords, func(r *bufio.Reader) (uint64, error) {
		return o.items(r, func(it *stream.Item) error {
			if it.Rev == (kv.Rev{}) || it.Rev.Main <= int64(o.Header.First) ||
				it.Rev.Main > int64(o.Header.Last) || !last.Less(it.Rev) {
				return fmt.Errorf("a record of revision %d.%d after %d.%d, in a part of the revisions above %d up to %d",
					it.Rev.Main, it.Rev.Sub, last.Main, last.Sub, o.Header.First, o.Header.Last)
			}
			last = it.Rev
			return visited(visit(it.Stamp, it.Tombstone, it.Data))
		})
	})
}

// Meta calls visit with each meta record of a meta part.
func (o *Object) Meta(visit func(history.Meta) error) error {
	return o.content(KindMeta, func(r *bufio.Reader) (uint64, error) {
		return o.items(r, func(it *stream.Item) error {
			if it.Rev != (kv.Rev{}) {
				return errors.New("a record among the meta records")
			}
			return visited(visit(it.Meta))
		})
	})
}

func (o *Object) items(r *bufio.Reader, visit func(*stream.Item) error) (n uint64, err error) {
	d := stream.NewDecoder(r)
	for {
		it, err := d.Next()
		if err == io.EOF {
			return n, nil
		}
		if err == nil {
			err = visit(&it)
		}
		if err != nil {
			return n, err
		}
		n++
	}
}

// Live calls visit with each revision of a live part, in their order.
func (o *Object) Live(visit func(kv.Rev) error) error {
	return o.content(KindLive, func(in *bufio.Reader) (uint64, error) {
		r, last, n := checked{r: in}, kv.Rev{}, uint64(0)
		for {
			delta := r.uvarint()
			if r.err != nil {
				return n, r.err
			}
			if delta == 0 {
				return n, r.end(n)
			}
			rev := kv.Rev{Main: last.Main + int64(delta>>1)}
			if delta&1 != 0 {
				rev.Sub = int64(r.uvarint())
			}
			if r.err != nil || delta>>1 > 1<<62 || rev.Sub < 0 || !last.Less(rev) ||
				rev.Main >= int64(o.Header.Last) {
				return n, fmt.Errorf("revision %d.%d after %d.%d (%v)", rev.Main, rev.Sub,
					last.Main, last.Sub, r.err)
			}
			last = rev
			n++
			if err := visit(rev); err != nil {
				return n, visited(err)
			}
		}
	})
}

// Entries calls visit with each entry of a log object, in their order. The entry belongs to visit.
func (o *Object) Entries(visit func(*raftpb.Entry) error) error {
	return o.content(KindLog, func(in *bufio.Reader) (uint64, error) {
		r, n, term := checked{r: in}, uint64(0), uint64(0)
		for {
			switch kind := r.byte(); {
			case r.err != nil:
				return n, r.err
			case kind == itemEnd:
				if term != o.Header.LastTerm {
					return n, fmt.Errorf("the last entry has term %d, not %d", term,
						o.Header.LastTerm)
				}
				return n, r.end(n)
			case kind != itemEntry:
				return n, fmt.Errorf("an item of kind %d", kind)
			}
			delta, typ, size := r.uvarint(), r.uvarint(), r.uvarint()
			data := r.bytes(size)
			switch {
			case r.err != nil:
				return n, r.err
			case delta > 1<<62 || term+delta < o.Header.FirstTerm ||
				term+delta > o.Header.LastTerm || n == 0 && delta != o.Header.FirstTerm ||
				typ > uint64(raftpb.EntryConfChangeV2):
				return n, fmt.Errorf("entry %d of type %d and term %d", o.Header.First+n,
					typ, term+delta)
			}
			term += delta
			e := &raftpb.Entry{Index: new(o.Header.First + n), Term: new(term),
				Type: raftpb.EntryType(typ).Enum(), Data: data}
			n++
			if err := visit(e); err != nil {
				return n, visited(err)
			}
		}
	})
}

// checked reads numbers and bytes, and keeps their checksum and the first error.
type checked struct {
	r   *bufio.Reader
	sum uint32
	err error
}

func (c *checked) byte() byte {
	if c.err != nil {
		return 0
	}
	b, err := c.r.ReadByte()
	if err != nil {
		c.err = unexpected(err)
		return 0
	}
	c.sum = crc32.Update(c.sum, castagnoli, []byte{b})
	return b
}

func (c *checked) uvarint() uint64 {
	v, n := uint64(0), 0
	for shift := 0; ; shift += 7 {
		b := c.byte()
		n++
		if c.err == nil && (shift == 63 && b > 1 || n > 1 && b == 0) {
			c.err = errors.New("a malformed number")
		}
		if c.err != nil {
			return 0
		}
		v |= uint64(b&0x7f) << shift
		if b < 0x80 {
			return v
		}
	}
}

// bytes returns the next n bytes, and takes memory only as they arrive.
func (c *checked) bytes(n uint64) []byte {
	if c.err == nil && n > MaxContent {
		c.err = fmt.Errorf("an entry of %d bytes", n)
	}
	var out []byte
	for c.err == nil && uint64(len(out)) < n {
		from := len(out)
		out = append(out, make([]byte, min(n-uint64(from), readPiece))...)
		if _, err := io.ReadFull(c.r, out[from:]); err != nil {
			c.err = unexpected(err)
		}
	}
	c.sum = crc32.Update(c.sum, castagnoli, out)
	return out
}

// end reads the number of items and the checksum, and checks that nothing follows.
func (c *checked) end(items uint64) error {
	var b [12]byte
	if c.err == nil {
		if _, err := io.ReadFull(c.r, b[:]); err != nil {
			c.err = unexpected(err)
		}
	}
	switch {
	case c.err != nil:
		return c.err
	case binary.LittleEndian.Uint64(b[:]) != items:
		return fmt.Errorf("%d items, not %d", items, le.Uint64(b[:]))
	case le.Uint32(b[8:]) != crc32.Update(c.sum, castagnoli, b[:8]):
		return errors.New("the checksum of the items does not match")
	}
	if _, err := c.r.ReadByte(); err != io.EOF {
		return fmt.Errorf("bytes after the end (%v)", err)
	}
	return nil
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
