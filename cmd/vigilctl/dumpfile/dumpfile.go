// Package dumpfile reads and writes dumps: files with keys and leases as lines of JSON.
package dumpfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"slices"

	"vigil/client"
	"vigil/cmd/vigilctl/keytext"
)

// A dump is a file of lines of JSON: a header, the keys in ascending order with each lease before
// its first key, and a trailer.
//
//	{"vigil_dump":1,"cluster_id":"...","revision":9,"prefixes":["a/"],"keys":2}
//	{"lease":"32695410dcc0ca06","ttl":60,"remaining":41}
//	{"key":"a/1","value":"x","create_revision":2,"mod_revision":7,"version":3,"lease":"32695410dcc0ca06"}
//	{"key":{"base64":"YS//"},"value":"y","create_revision":9,"mod_revision":9,"version":1}
//	{"end":true,"keys":2,"leases":1,"sha256":"..."}
//
// The checksum is that of all bytes before the trailer.
const version = 1

// maxLine limits a line. Members do not accept values that large.
const maxLine = 1 << 30

// Header is the first line.
type Header struct {
	Version   int            `json:"vigil_dump"`
	ClusterID string         `json:"cluster_id"`
	Revision  int64          `json:"revision"`
	Prefixes  []keytext.JSON `json:"prefixes"`
	Keys      int64          `json:"keys"` // the number of keys in the file
}

// NewHeader returns the header of a dump with a number of keys.
func NewHeader(clusterID uint64, revision int64, keys int64, prefixes ...string) *Header {
	h := &Header{Version: version, ClusterID: fmt.Sprintf("%x", clusterID),
		Revision: revision, Keys: keys}
	for _, p := range prefixes {
		h.Prefixes = append(h.Prefixes, keytext.JSON(p))
	}
	return h
}

// Same reports whether two dumps have the same source.
func (h *Header) Same(other *Header) bool {
	return h.Version == other.Version && h.ClusterID == other.ClusterID &&
		slices.Equal(h.Prefixes, other.Prefixes)
}

// Lease is the line of a lease. TTL is 0 if the lease ended before the dump read its keys.
type Lease struct {
	ID        keytext.Lease `json:"lease"`
	TTL       int64         `json:"ttl"` // seconds
	Remaining int64         `json:"remaining"`
}

// Key is the line of a key.
type Key struct {
	Key   keytext.JSON `json:"key"`
	Value keytext.JSON `json:"value"`
	keytext.Metadata
}

// trailer is the last line.
type trailer struct {
	End    bool   `json:"end"`
	Keys   int64  `json:"keys"`
	Leases int64  `json:"leases"`
	SHA256 string `json:"sha256"`
}

// Writer writes lines, and counts keys and leases. Write keys in ascending order, each after its
// lease.
type Writer struct {
	w            *bufio.Writer
	sum          hash.Hash
	keys, leases int64
	last         string // the last key
	known        map[client.LeaseID]bool
}

func newWriter(w io.Writer) *Writer {
	return &Writer{w: bufio.NewWriterSize(w, 1<<20), sum: sha256.New(),
		known: map[client.LeaseID]bool{}}
}

// NewWriter writes the header.
func NewWriter(w io.Writer, h *Header) (*Writer, error) {
	d := newWriter(w)
	return d, d.writeLine(h)
}

// writeLine writes one line.
func (d *Writer) writeLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	d.sum.Write(b)
	_, err = d.w.Write(b)
	return err
}

// Keys returns the number of written keys.
func (d *Writer) Keys() int64 { return d.keys }

// Leases returns the number of written leases.
func (d *Writer) Leases() int64 { return d.leases }

// Last returns the last written key.
func (d *Writer) Last() string { return d.last }

// HasLease reports whether a lease was written.
func (d *Writer) HasLease(id client.LeaseID) bool { return d.known[id] }

// Lease writes the line of a lease.
func (d *Writer) Lease(l Lease) error {
	d.leases++
	d.known[client.LeaseID(l.ID)] = true
	return d.writeLine(l)
}

// ErrOrder reports keys that are not in ascending order. No reader would accept such a dump.
var ErrOrder = errors.New("the key is not after the previous key")

// Key writes the line of a key.
func (d *Writer) Key(kv client.KeyValue) error {
	if kv.Key == "" || d.keys > 0 && kv.Key <= d.last {
		return fmt.Errorf("%w: %q follows %q", ErrOrder, kv.Key, d.last)
	}
	d.keys++
	d.last = kv.Key
	return d.writeLine(Key{keytext.JSON(kv.Key), keytext.JSON(kv.Value), keytext.MetadataOf(kv)})
}

// Flush writes buffered lines, so that an interrupted dump can resume.
func (d *Writer) Flush() error { return d.w.Flush() }

// End writes the trailer.
func (d *Writer) End() error {
	if err := d.writeLine(trailer{true, d.keys, d.leases,
		hex.EncodeToString(d.sum.Sum(nil))}); err != nil {
		return err
	}
	return d.w.Flush()
}

// ErrNoEnd reports a dump without a trailer.
var ErrNoEnd = errors.New("the dump is not whole: it has no last line; run the dump again, it resumes where it stopped")

// Reader reads lines.
type Reader struct {
	r      *bufio.Reader
	sum    hash.Hash
	number int   // of the last line
	read   int64 // bytes of complete lines
	// Header is the first line.
	Header Header
	keys   int64
	leases int64
	last   string
}

// NewReader reads the header.
func NewReader(r io.Reader) (*Reader, error) {
	d := &Reader{r: bufio.NewReaderSize(r, 1<<20), sum: sha256.New()}
	line, err := d.readLine()
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err != nil || json.Unmarshal(line, &d.Header) != nil || d.Header.Version == 0 {
		return nil, errors.New("this is not a dump: the first line must be the header that vigilctl dump writes")
	}
	if d.Header.Version != version {
		return nil, fmt.Errorf("the dump has version %d, and this vigilctl knows %d: use a newer one", d.Header.Version, version)
	}
	d.sum.Write(line)
	return d, nil
}

// Keys returns how many keys were read.
func (d *Reader) Keys() int64 { return d.keys }

// Resume reads the remaining lines of an interrupted dump. It returns the number of bytes in
// complete lines and a Writer that continues after them. If the dump is complete except for its
// name, it writes the last line again.
func (d *Reader) Resume(w io.Writer) (whole int64, out *Writer, err error) {
	out = newWriter(w)
	for {
		whole = d.read
		key, lease, err := d.Next()
		if err != nil && !errors.Is(err, ErrNoEnd) {
			return 0, nil, err
		}
		if key == nil && lease == nil {
			break
		}
		if lease != nil {
			out.known[client.LeaseID(lease.ID)] = true
		}
	}
	out.sum, out.keys, out.leases, out.last = d.sum, d.keys, d.leases, d.last
	return whole, out, nil
}

// readLine returns the next line including its end, or io.EOF if there is no complete line.
func (d *Reader) readLine() ([]byte, error) {
	var line []byte
	for {
		part, err := d.r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, fmt.Errorf("line %d has more than %d bytes", d.number+1, maxLine)
		}
		if err == nil && line == nil {
			line = part
		} else {
			line = append(line, part...)
		}
		switch err {
		case nil:
			d.number++
			d.read += int64(len(line))
			return line, nil
		case bufio.ErrBufferFull:
		default:
			return nil, err
		}
	}
}

// anyLine is any line except the first.
type anyLine struct {
	Key       *keytext.JSON  `json:"key"`
	Value     *keytext.JSON  `json:"value"`
	Lease     *keytext.Lease `json:"lease"`
	TTL       *int64         `json:"ttl"`
	Remaining int64          `json:"remaining"`

	CreateRevision int64 `json:"create_revision"`
	ModRevision    int64 `json:"mod_revision"`
	Version        int64 `json:"version"`

	End    bool   `json:"end"`
	Keys   int64  `json:"keys"`
	Leases int64  `json:"leases"`
	SHA256 string `json:"sha256"`
}

// Next returns a key or a lease. After the trailer, whose counts and checksum it verifies, it
// returns neither. Without a trailer it returns ErrNoEnd.
func (d *Reader) Next() (*Key, *Lease, error) {
	b, err := d.readLine()
	if err == io.EOF {
		return nil, nil, ErrNoEnd
	}
	if err != nil {
		return nil, nil, err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("line %d: %s", d.number, fmt.Sprintf(format, args...))
	}
	var l anyLine
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return nil, nil, bad("%v", err)
	}
	if l.End {
		if got := hex.EncodeToString(d.sum.Sum(nil)); l.Keys != d.keys || l.Leases != d.leases ||
			l.SHA256 != got {
			return nil, nil, bad("the dump was changed: it has %d keys, %d leases and the checksum %s, the last line says %d, %d and %s", d.keys, d.leases, got, l.Keys, l.Leases, l.SHA256)
		}
		if d.keys != d.Header.Keys {
			return nil, nil, bad("the dump has %d keys and its first line promises %d: it is not complete, make it again", d.keys, d.Header.Keys)
		}
		if b, err := d.r.ReadByte(); err != io.EOF {
			return nil, nil, bad("something follows the last line: %q", b)
		}
		return nil, nil, nil
	}
	d.sum.Write(b)
	switch {
	case l.Key != nil && l.Value != nil:
		k := &Key{Key: *l.Key, Value: *l.Value,
			Metadata: keytext.Metadata{CreateRevision: l.CreateRevision, ModRevision: l.ModRevision,
				Version: l.Version}}
		if l.Lease != nil {
			k.Lease = *l.Lease
		}
		if *l.Key == "" || d.keys > 0 && string(*l.Key) <= d.last {
			return nil, nil, bad("the key %q is not after the previous key, %q",
				string(*l.Key), d.last)
		}
		d.keys++
		d.last = string(*l.Key)
		return k, nil, nil
	case l.Lease != nil && l.TTL != nil && l.Key == nil:
		if *l.TTL < 0 || *l.Lease == 0 {
			return nil, nil, bad("lease %016x with a TTL of %d seconds", int64(*l.Lease), *l.TTL)
		}
		d.leases++
		return nil, &Lease{*l.Lease, *l.TTL, l.Remaining}, nil
	}
	return nil, nil, bad("neither a key with its value nor a lease with its ttl")
}
