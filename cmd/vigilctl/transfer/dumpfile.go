package transfer

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

	"vigil/client"
	"vigil/cmd/vigilctl/keytext"
)

// A dump is a file of lines of JSON: a header, the keys in ascending order with each lease before its first key, and a
// trailer.
//
//	{"vigil_dump":1,"cluster_id":"...","revision":9,"prefixes":["a/"],"keys":2}
//	{"lease":"32695410dcc0ca06","ttl":60,"remaining":41}
//	{"key":"a/1","value":"x","create_revision":2,"mod_revision":7,"version":3,"lease":"32695410dcc0ca06"}
//	{"key":{"base64":"YS//"},"value":"y","create_revision":9,"mod_revision":9,"version":1}
//	{"end":true,"keys":2,"leases":1,"sha256":"..."}
//
// The checksum is that of all bytes before the trailer.
const dumpVersion = 1

// maxLine limits a line. Members accept no value of that size.
const maxLine = 1 << 30

// dumpHeader is the first line.
type dumpHeader struct {
	Version   int            `json:"vigil_dump"`
	ClusterID string         `json:"cluster_id"`
	Revision  int64          `json:"revision"`
	Prefixes  []keytext.JSON `json:"prefixes"`
	Keys      int64          `json:"keys"` // the number of keys in the file
}

// same reports whether two dumps have the same source.
func (h *dumpHeader) same(other *dumpHeader) bool {
	if h.Version != other.Version || h.ClusterID != other.ClusterID || len(h.Prefixes) != len(other.Prefixes) {
		return false
	}
	for i, p := range h.Prefixes {
		if p != other.Prefixes[i] {
			return false
		}
	}
	return true
}

// dumpLease is the line of a lease. TTL is 0 if the lease ended before its keys were read.
type dumpLease struct {
	ID        keytext.Lease `json:"lease"`
	TTL       int64         `json:"ttl"` // seconds
	Remaining int64         `json:"remaining"`
}

// dumpKey is the line of a key.
type dumpKey struct {
	Key   keytext.JSON `json:"key"`
	Value keytext.JSON `json:"value"`
	keytext.Metadata
}

// dumpEnd is the last line.
type dumpEnd struct {
	End    bool   `json:"end"`
	Keys   int64  `json:"keys"`
	Leases int64  `json:"leases"`
	SHA256 string `json:"sha256"`
}

// dumpWriter writes lines, and counts keys and leases.
type dumpWriter struct {
	w            *bufio.Writer
	sum          hash.Hash
	keys, leases int64
	last         string // the last key
	known        map[client.LeaseID]bool
}

func newDumpWriter(w io.Writer) *dumpWriter {
	return &dumpWriter{w: bufio.NewWriterSize(w, 1<<20), sum: sha256.New(), known: map[client.LeaseID]bool{}}
}

// line writes one line.
func (d *dumpWriter) line(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	d.sum.Write(b)
	_, err = d.w.Write(b)
	return err
}

func (d *dumpWriter) lease(l dumpLease) error {
	d.leases++
	d.known[client.LeaseID(l.ID)] = true
	return d.line(l)
}

func (d *dumpWriter) key(kv client.KeyValue) error {
	d.keys++
	d.last = kv.Key
	return d.line(dumpKey{keytext.JSON(kv.Key), keytext.JSON(kv.Value), keytext.MetadataOf(kv)})
}

// end writes the trailer.
func (d *dumpWriter) end() error {
	if err := d.line(dumpEnd{true, d.keys, d.leases, hex.EncodeToString(d.sum.Sum(nil))}); err != nil {
		return err
	}
	return d.w.Flush()
}

// errNoEnd reports a dump without a trailer.
var errNoEnd = errors.New("the dump is not whole: it has no last line; run the dump again, it resumes where it stopped")

// dumpReader reads lines.
type dumpReader struct {
	r      *bufio.Reader
	sum    hash.Hash
	number int   // of the last line
	read   int64 // bytes of whole lines
	header dumpHeader
	keys   int64
	leases int64
	last   string
}

// newDumpReader reads the header.
func newDumpReader(r io.Reader) (*dumpReader, error) {
	d := &dumpReader{r: bufio.NewReaderSize(r, 1<<20), sum: sha256.New()}
	line, err := d.readLine()
	if err != nil && err != io.EOF {
		return nil, err
	}
	if err != nil || json.Unmarshal(line, &d.header) != nil || d.header.Version == 0 {
		return nil, errors.New("this is not a dump: the first line must be the header that vigilctl dump writes")
	}
	if d.header.Version != dumpVersion {
		return nil, fmt.Errorf("the dump has version %d, and this vigilctl knows %d: use a newer one", d.header.Version, dumpVersion)
	}
	d.sum.Write(line)
	return d, nil
}

// readLine returns the next line with its end, or io.EOF if there is no whole line.
func (d *dumpReader) readLine() ([]byte, error) {
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

// dumpLine is any line except the first.
type dumpLine struct {
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

// next returns a key or a lease, and neither after the trailer, whose counts and checksum it verifies. Without a trailer
// it returns errNoEnd.
func (d *dumpReader) next() (*dumpKey, *dumpLease, error) {
	b, err := d.readLine()
	if err == io.EOF {
		return nil, nil, errNoEnd
	}
	if err != nil {
		return nil, nil, err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("line %d: %s", d.number, fmt.Sprintf(format, args...))
	}
	var l dumpLine
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&l); err != nil {
		return nil, nil, bad("%v", err)
	}
	if l.End {
		if got := hex.EncodeToString(d.sum.Sum(nil)); l.Keys != d.keys || l.Leases != d.leases || l.SHA256 != got {
			return nil, nil, bad("the dump was changed: it has %d keys, %d leases and the checksum %s, the last line says %d, %d and %s", d.keys, d.leases, got, l.Keys, l.Leases, l.SHA256)
		}
		if d.keys != d.header.Keys {
			return nil, nil, bad("the dump has %d keys and its first line promises %d: it is not complete, make it again", d.keys, d.header.Keys)
		}
		if b, err := d.r.ReadByte(); err != io.EOF {
			return nil, nil, bad("something follows the last line: %q", b)
		}
		return nil, nil, nil
	}
	d.sum.Write(b)
	switch {
	case l.Key != nil && l.Value != nil:
		k := &dumpKey{Key: *l.Key, Value: *l.Value, Metadata: keytext.Metadata{CreateRevision: l.CreateRevision, ModRevision: l.ModRevision, Version: l.Version}}
		if l.Lease != nil {
			k.Lease = *l.Lease
		}
		if *l.Key == "" || d.keys > 0 && string(*l.Key) <= d.last {
			return nil, nil, bad("the key %q is not after the previous key, %q", string(*l.Key), d.last)
		}
		d.keys++
		d.last = string(*l.Key)
		return k, nil, nil
	case l.Lease != nil && l.TTL != nil && l.Key == nil:
		if *l.TTL < 0 || *l.Lease == 0 {
			return nil, nil, bad("lease %016x with a TTL of %d seconds", int64(*l.Lease), *l.TTL)
		}
		d.leases++
		return nil, &dumpLease{*l.Lease, *l.TTL, l.Remaining}, nil
	}
	return nil, nil, bad("neither a key with its value nor a lease with its ttl")
}
