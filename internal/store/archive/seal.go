package archive

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"
	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/store/history"
	"vigil/internal/store/stream"
)

// maxRecipients limits the recipients of an archive.
const maxRecipients = 64

// parseRecipients parses public keys of age.
func parseRecipients(keys []string) ([]age.Recipient, error) {
	if len(keys) > maxRecipients {
		return nil, fmt.Errorf("%d recipients, the most is %d", len(keys), maxRecipients)
	}
	var out []age.Recipient
	for _, k := range keys {
		r, err := age.ParseX25519Recipient(k)
		if err != nil {
			return nil, fmt.Errorf("recipient %q: it is not a public key of age (age1...)",
				k[:min(len(k), 80)])
		}
		out = append(out, r)
	}
	return out, nil
}

// CheckRecipients returns an error if a key is not a public key of age.
func CheckRecipients(keys []string) error {
	_, err := parseRecipients(keys)
	return err
}

// Sealer makes the objects of an archive. It may be used from any goroutine; the writers that it
// returns have one owner each.
type Sealer struct {
	id         Identity
	recipients []age.Recipient
	// encoders keeps one encoder that is not in use. It has 2.5 MiB of tables, which a new encoder
	// for each log object, about one a second, would allocate again.
	encoders chan *zstd.Encoder
}

// NewSealer returns a Sealer for an archive, whose objects are encrypted to recipients. The
// recipients may differ from the identity's, but an archive that began encrypted stays encrypted,
// and one that began without encryption stays without.
func NewSealer(id Identity, recipients []string) (*Sealer, error) {
	switch {
	case len(id.Recipients) > 0 && len(recipients) == 0:
		return nil, errors.New("archive: its objects are encrypted, and no recipient is configured")
	case len(id.Recipients) == 0 && len(recipients) > 0:
		return nil, errors.New("archive: it was begun without encryption: remove the recipients, or use another bucket or prefix")
	}
	r, err := parseRecipients(recipients)
	if err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	return &Sealer{id: id, recipients: r, encoders: make(chan *zstd.Encoder, 1)}, nil
}

// Sealed is a complete object.
type Sealed struct {
	Name   string
	Header Header
	Data   []byte
}

// sealer writes the content of one object: compressed, then encrypted, into memory.
type sealer struct {
	s       *Sealer
	buf     bytes.Buffer
	secret  io.WriteCloser // nil without encryption
	zip     *zstd.Encoder
	content int64
	items   uint64
	piece   []byte
	err     error
}

// start begins an object.
func (w *sealer) start() {
	if w.zip != nil || w.err != nil {
		return
	}
	w.buf.Write(make([]byte, HeaderSize))
	out := io.Writer(&w.buf)
	if len(w.s.recipients) > 0 {
		if w.secret, w.err = age.Encrypt(&w.buf, w.s.recipients...); w.err != nil {
			return
		}
		out = w.secret
	}
	select {
	case w.zip = <-w.s.encoders:
		w.zip.Reset(out)
	default:
		w.zip, w.err = zstd.NewWriter(out, zstd.WithEncoderConcurrency(1),
			zstd.WithWindowSize(1<<20), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false))
	}
}

// write writes a piece of the content.
func (w *sealer) write(b []byte) error {
	w.start()
	if w.err == nil && w.content+int64(len(b)) > MaxContent {
		w.err = fmt.Errorf("archive: an object with more than %d bytes", MaxContent)
	}
	if w.err == nil {
		_, w.err = w.zip.Write(b)
		w.content += int64(len(b))
	}
	if w.piece = b[:0]; cap(b) > 1<<20 {
		w.piece = nil
	}
	return w.err
}

// seal ends the object.
func (w *sealer) seal(h Header) (*Sealed, error) {
	if w.err == nil {
		w.err = w.zip.Close()
	}
	if w.err == nil && w.secret != nil {
		w.err = w.secret.Close()
	}
	if w.err != nil {
		return nil, w.err
	}
	w.zip.Reset(nil) // so that it keeps no reference to the object
	select {
	case w.s.encoders <- w.zip:
	default:
	}
	w.zip, w.err = nil, errors.New("archive: the object is complete")
	data := w.buf.Bytes()
	if len(data) > MaxObject {
		return nil, fmt.Errorf("archive: an object with more than %d bytes", MaxObject)
	}
	h.Encrypted = w.secret != nil
	h.Cluster, h.Archive = uint64(w.s.id.Cluster), w.s.id.Archive
	h.Items, h.Content, h.Body, h.Sum = w.items, w.content, int64(len(data)-HeaderSize),
		sha256.Sum256(data[HeaderSize:])
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("archive: %w", err)
	}
	h.put(data)
	return &Sealed{Header: h, Data: data}, nil
}

// part ends an object that is a part, and returns its entry of a manifest.
func (w *sealer) part(h Header) (Part, *Sealed, error) {
	var random [8]byte
	_, _ = rand.Read(random[:])
	h.Sender = le.Uint64(random[:])
	o, err := w.seal(h)
	if err != nil {
		return Part{}, nil, err
	}
	o.Name = partName(sha256.Sum256(o.Data))
	return Part{Name: o.Name, Kind: h.Kind.String(), Size: int64(len(o.Data)),
		SHA256: sumText(o.Data),
		After:  int64(h.First), Through: int64(h.Last), Items: o.Header.Items,
		Content: o.Header.Content}, o, nil
}

// RecordsWriter makes a part with records.
type RecordsWriter struct {
	w sealer
	c stream.Content
}

// NewRecords begins a part with records.
func (s *Sealer) NewRecords() *RecordsWriter { return &RecordsWriter{w: sealer{s: s}} }

// Add adds a record. Records are added in the order of their revisions; all records of a revision
// are in one part.
func (p *RecordsWriter) Add(at history.Stamp, tombstone bool, data []byte) error {
	p.w.items++
	return p.w.write(p.c.AppendRecord(p.w.piece, at, tombstone, data))
}

// Size returns the size of the content so far, before compression.
func (p *RecordsWriter) Size() int64 { return p.w.content }

// Seal ends the part, which has the records of the revisions above after up to through.
func (p *RecordsWriter) Seal(after, through int64) (Part, *Sealed, error) {
	_ = p.w.write(p.c.AppendEnd(p.w.piece))
	return p.w.part(Header{Kind: KindRecords, First: uint64(after), Last: uint64(through)})
}

// MetaWriter makes a part with meta records.
type MetaWriter struct {
	w sealer
	c stream.Content
}

// NewMeta begins a part with meta records. A base has all meta records of the state, in one part or
// several.
func (s *Sealer) NewMeta() *MetaWriter { return &MetaWriter{w: sealer{s: s}} }

// Add adds a meta record, which is not a deletion.
func (p *MetaWriter) Add(m *history.Meta) error {
	p.w.items++
	return p.w.write(p.c.AppendMeta(p.w.piece, m))
}

// Size returns the size of the content so far, before compression.
func (p *MetaWriter) Size() int64 { return p.w.content }

// Seal ends the part.
func (p *MetaWriter) Seal() (Part, *Sealed, error) {
	_ = p.w.write(p.c.AppendEnd(p.w.piece))
	return p.w.part(Header{Kind: KindMeta})
}

// LiveWriter makes a part that lists records.
type LiveWriter struct {
	w    sealer
	last kv.Rev
	sum  uint32
}

// NewLive begins a part that lists the records below a compact revision which still count.
func (s *Sealer) NewLive() *LiveWriter { return &LiveWriter{w: sealer{s: s}} }

// Add adds a record. Records are added in their order.
func (p *LiveWriter) Add(rev kv.Rev) error {
	if !p.last.Less(rev) || rev.Main <= 0 || rev.Sub < 0 {
		return fmt.Errorf("archive: revision %d.%d cannot follow %d.%d", rev.Main, rev.Sub,
			p.last.Main, p.last.Sub)
	}
	b, delta := p.w.piece, uint64(rev.Main-p.last.Main)
	if delta > 0 && rev.Sub == 0 {
		b = binary.AppendUvarint(b, delta<<1)
	} else {
		b = binary.AppendUvarint(b, delta<<1|1)
		b = binary.AppendUvarint(b, uint64(rev.Sub))
	}
	p.last = rev
	p.w.items++
	p.sum = crc32.Update(p.sum, castagnoli, b)
	return p.w.write(b)
}

// Size returns the size of the content so far, before compression.
func (p *LiveWriter) Size() int64 { return p.w.content }

// Seal ends the part. compact is the compact revision of the base.
func (p *LiveWriter) Seal(compact int64) (Part, *Sealed, error) {
	b := binary.AppendUvarint(p.w.piece, 0)
	b = le.AppendUint64(b, p.w.items)
	_ = p.w.write(le.AppendUint32(b, crc32.Update(p.sum, castagnoli, b)))
	return p.w.part(Header{Kind: KindLive, Last: uint64(max(compact, 0))})
}

// LogWriter makes a log object.
type LogWriter struct {
	w          sealer
	sum        uint32
	at         uint64
	term       uint64
	firstTerm  uint64
	firstIndex uint64
}

// LogInfo describes the entries of a log object, besides their content.
type LogInfo struct {
	// Sender is the id of the member that sends the object.
	Sender uint64
	// Before is the revision before the first entry was applied, After the revision after the last
	// one.
	Before, After int64
	// FirstTime and LastTime are when the sender applied the first and the last entry.
	FirstTime, LastTime time.Time
	// Claim is the newest claim that the sender has applied, of the term of the last entry or a
	// later one.
	Claim Claim
}

const (
	itemEntry byte = 1
	itemEnd   byte = 2
)

// NewLog begins a log object.
func (s *Sealer) NewLog() *LogWriter { return &LogWriter{w: sealer{s: s}} }

// Add adds a committed entry. Its index must follow the index of the entry before.
func (l *LogWriter) Add(e *raftpb.Entry) error {
	if l.w.items > 0 && e.GetIndex() != l.at+1 || e.GetTerm() < l.term || e.GetTerm() == 0 ||
		e.GetIndex() == 0 {
		return fmt.Errorf("archive: entry %d of term %d cannot follow entry %d of term %d",
			e.GetIndex(), e.GetTerm(), l.at, l.term)
	}
	b := append(l.w.piece, itemEntry)
	b = binary.AppendUvarint(b, e.GetTerm()-l.term)
	b = binary.AppendUvarint(b, uint64(e.GetType()))
	b = binary.AppendUvarint(b, uint64(len(e.GetData())))
	b = append(b, e.GetData()...)
	if l.w.items == 0 {
		l.firstIndex, l.firstTerm = e.GetIndex(), e.GetTerm()
	}
	l.at, l.term = e.GetIndex(), e.GetTerm()
	l.w.items++
	l.sum = crc32.Update(l.sum, castagnoli, b)
	return l.w.write(b)
}

// Size returns the size of the content so far, before compression.
func (l *LogWriter) Size() int64 { return l.w.content }

// Last returns the index of the last entry, 0 for none.
func (l *LogWriter) Last() uint64 { return l.at }

// Seal ends the object, which has at least one entry, and gives it a new name.
func (l *LogWriter) Seal(i LogInfo) (*Sealed, error) {
	if !i.Claim.covers(l.term) {
		return nil, fmt.Errorf("archive: entry %d of term %d is not covered by the claim of term %d", l.at, l.term, i.Claim.Term)
	}
	b := le.AppendUint64(append(l.w.piece, itemEnd), l.w.items)
	_ = l.w.write(le.AppendUint32(b, crc32.Update(l.sum, castagnoli, b)))
	o, err := l.w.seal(Header{Kind: KindLog, First: l.firstIndex, Last: l.at,
		FirstTerm: l.firstTerm, LastTerm: l.term,
		Before: i.Before, After: i.After, FirstTime: i.FirstTime.UnixMilli(),
		LastTime: i.LastTime.UnixMilli(), Sender: i.Sender, Claim: i.Claim})
	if err != nil {
		return nil, err
	}
	o.Name = NewLogName(l.firstIndex, l.at)
	return o, nil
}
