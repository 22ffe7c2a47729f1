package wire

import (
	"encoding/binary"

	"vigil/client/pbfield"
	"vigil/internal/kv"
)

// WatchKind says which member of its oneof a WatchRequest has.
type WatchKind uint8

// The members of WatchRequest's oneof. WatchNothing is a request without any member, which is legal
// and has no effect.
const (
	WatchNothing WatchKind = iota
	WatchCreate
	WatchCancel
	WatchProgress
)

// WatchRequest is etcdserverpb.WatchRequest.
type WatchRequest struct {
	Kind WatchKind
	// Create is set if Kind is WatchCreate.
	Create WatchCreateRequest
	// CancelID is set if Kind is WatchCancel.
	CancelID int64
}

// WatchCreateRequest is etcdserverpb.WatchCreateRequest. Filters of unknown numbers are dropped.
type WatchCreateRequest struct {
	Key, End         []byte
	StartRevision    int64
	WatchID          int64
	ProgressNotify   bool
	NoPut, NoDelete  bool
	PrevKV, Fragment bool
}

// Decode implements Decoder.
func (m *WatchRequest) Decode(b []byte) error {
	r := pbfield.Read(b)
	var body []byte
	for r.Next() {
		if r.Message(1, &body) {
			m.setKind(WatchCreate)
			r.Check(m.Create.decode(body))
		}
		if r.Message(2, &body) {
			m.setKind(WatchCancel)
			c := pbfield.Read(body)
			for c.Next() {
				pbfield.Int(&c, 1, &m.CancelID)
			}
			r.Check(c.Err())
		}
		if r.Message(3, &body) {
			m.setKind(WatchProgress)
			p := pbfield.Read(body)
			for p.Next() { // it has no fields
			}
			r.Check(p.Err())
		}
	}
	return r.Err()
}

// setKind makes k the member of the oneof. It drops what another member left.
func (m *WatchRequest) setKind(k WatchKind) {
	if m.Kind != k {
		*m = WatchRequest{Kind: k}
	}
}

func (m *WatchCreateRequest) decode(b []byte) error {
	r := pbfield.Read(b)
	for r.Next() {
		r.Bytes(1, &m.Key)
		r.Bytes(2, &m.End)
		pbfield.Int(&r, 3, &m.StartRevision)
		r.Bool(4, &m.ProgressNotify)
		r.Ints(5, func(filter uint64) {
			m.NoPut = m.NoPut || int32(filter) == 0
			m.NoDelete = m.NoDelete || int32(filter) == 1
		})
		r.Bool(6, &m.PrevKV)
		pbfield.Int(&r, 7, &m.WatchID)
		r.Bool(8, &m.Fragment)
	}
	return r.Err()
}

// WatchResponse is etcdserverpb.WatchResponse.
type WatchResponse struct {
	Header  kv.Header
	WatchID int64
	// Also are further watchers of the stream that get the same response, each as a separate
	// message. Encodings are for WatchID.
	Also     []int64
	Created  bool
	Canceled bool
	// CompactRevision is not 0 if the watcher was canceled because of a compaction.
	CompactRevision int64
	Reason          string
	// Fragment is set on all parts of a split response except the last.
	Fragment bool
	// Events are encoded mvccpb.Event messages.
	Events [][]byte
}

const eventsField = 11

// Size implements Encoder.
func (m *WatchResponse) Size() int {
	n := m.SizeFront()
	for _, ev := range m.Events {
		n += 1 + pbfield.SizeBytes(len(ev))
	}
	return n
}

// AppendTo implements Encoder.
func (m *WatchResponse) AppendTo(b []byte) []byte {
	b = m.AppendFront(b)
	for _, ev := range m.Events {
		b = pbfield.AppendPresent(b, eventsField, ev)
	}
	return b
}

// Count returns the number of messages.
func (m *WatchResponse) Count() int { return 1 + len(m.Also) }

// One returns the i-th message.
func (m *WatchResponse) One(i int) WatchResponse {
	one := *m
	if one.Also = nil; i > 0 {
		one.WatchID = m.Also[i-1]
	}
	return one
}

// SizeEach returns the size of all messages together.
func (m *WatchResponse) SizeEach() int {
	size := m.Size()
	rest := size - sizeInt(uint64(m.WatchID))
	for _, id := range m.Also {
		size += rest + sizeInt(uint64(id))
	}
	return size
}

// SameSize reports whether the message for another watcher has the same size. Then the messages
// differ only in the bytes of the id.
func (m *WatchResponse) SameSize(id int64) bool {
	return sizeInt(uint64(id)) == sizeInt(uint64(m.WatchID))
}

// PutWatchID turns an encoding of the message into the encoding for another watcher, if both have
// the same size.
func (m *WatchResponse) PutWatchID(encoding []byte, id int64) {
	if id != 0 {
		binary.PutUvarint(encoding[1+pbfield.SizeBytes(sizeHeader(m.Header))+1:], uint64(id))
	}
}

// Parts appends slices to dst that make up the encoding. Events of at least share bytes are slices
// themselves, not copied; the rest is copied to new memory.
func (m *WatchResponse) Parts(dst [][]byte, share int) [][]byte {
	b := m.AppendFront(make([]byte, 0, m.SizeFront()+sizeEventParts(m.Events, share)))
	return appendEventParts(dst, b, m.Events, share)
}

// EventParts is the part of Parts after the front. It depends only on the events, so responses that
// differ only in their front may share it.
func EventParts(dst, events [][]byte, share int) [][]byte {
	return appendEventParts(dst, make([]byte, 0, sizeEventParts(events, share)), events, share)
}

// sizeEventParts returns how many bytes appendEventParts needs in b.
func sizeEventParts(events [][]byte, share int) int {
	n := 0
	for _, ev := range events {
		n += 1 + pbfield.SizeVarint(uint64(len(ev)))
		if len(ev) < share {
			n += len(ev)
		}
	}
	return n
}

// appendEventParts appends b to dst, followed by the events.
func appendEventParts(dst [][]byte, b []byte, events [][]byte, share int) [][]byte {
	from := 0
	for _, ev := range events {
		b = pbfield.AppendLen(b, eventsField, len(ev))
		if len(ev) < share {
			b = append(b, ev...)
			continue
		}
		dst = append(dst, b[from:len(b):len(b)], ev)
		from = len(b)
	}
	if from < len(b) {
		dst = append(dst, b[from:])
	}
	return dst
}

// SizeFront returns the size of everything before the events.
func (m *WatchResponse) SizeFront() int {
	n := 1 + pbfield.SizeBytes(sizeHeader(m.Header)) + sizeInt(uint64(m.WatchID)) +
		sizeBool(m.Created) +
		sizeBool(m.Canceled) + sizeInt(uint64(m.CompactRevision)) + sizeBool(m.Fragment)
	if m.Reason != "" {
		n += 1 + pbfield.SizeBytes(len(m.Reason))
	}
	return n
}

// AppendFront appends everything before the events.
func (m *WatchResponse) AppendFront(b []byte) []byte {
	b = appendHeader(b, m.Header)
	b = pbfield.AppendInt(b, 2, m.WatchID)
	b = pbfield.AppendBool(b, 3, m.Created)
	b = pbfield.AppendBool(b, 4, m.Canceled)
	b = pbfield.AppendInt(b, 5, m.CompactRevision)
	if m.Reason != "" {
		b = append(pbfield.AppendLen(b, 6, len(m.Reason)), m.Reason...)
	}
	return pbfield.AppendBool(b, 7, m.Fragment)
}
