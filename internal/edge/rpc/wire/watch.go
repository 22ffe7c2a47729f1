package wire

import (
	"encoding/binary"

	"vigil/internal/kv"
)

// WatchKind is the member of its oneof that a WatchRequest has.
type WatchKind uint8

// The members of WatchRequest's oneof. WatchNothing is a request without any, which is legal and
// means nothing.
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
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var body []byte
		var err error
		switch tag {
		case 1<<3 | typeBytes:
			m.choose(WatchCreate)
			if body, n = takeBytes(b); n > 0 {
				err = m.Create.decode(body)
			}
		case 2<<3 | typeBytes:
			m.choose(WatchCancel)
			if body, n = takeBytes(b); n > 0 {
				err = m.decodeCancel(body)
			}
		case 3<<3 | typeBytes:
			m.choose(WatchProgress)
			if body, n = takeBytes(b); n > 0 {
				err = skipFields(body)
			}
		default:
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}

// choose makes k the member of the oneof; what another member left is dropped.
func (m *WatchRequest) choose(k WatchKind) {
	if m.Kind != k {
		*m = WatchRequest{Kind: k}
	}
}

func (m *WatchRequest) decodeCancel(b []byte) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		if tag == 1<<3|typeVarint {
			n = takeInt64(b, &m.CancelID)
		} else {
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}

// skipFields passes over a whole message of which no field is known.
func skipFields(b []byte) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		n, err := skipField(tag, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

func (m *WatchCreateRequest) decode(b []byte) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeBytes:
			m.Key, n = takeBytes(b)
		case 2<<3 | typeBytes:
			m.End, n = takeBytes(b)
		case 3<<3 | typeVarint:
			n = takeInt64(b, &m.StartRevision)
		case 4<<3 | typeVarint:
			n = takeBool(b, &m.ProgressNotify)
		case 5<<3 | typeVarint:
			n = m.filter(b)
		case 5<<3 | typeBytes:
			n = m.packedFilters(b)
		case 6<<3 | typeVarint:
			n = takeBool(b, &m.PrevKV)
		case 7<<3 | typeVarint:
			n = takeInt64(b, &m.WatchID)
		case 8<<3 | typeVarint:
			n = takeBool(b, &m.Fragment)
		default:
			n, err = skipField(tag, b)
		}
		if err != nil || n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
	}
	return nil
}

// filter takes one number of the list of filters.
func (m *WatchCreateRequest) filter(b []byte) int {
	var f int32
	n := takeInt32(b, &f)
	if n > 0 {
		m.NoPut = m.NoPut || f == 0
		m.NoDelete = m.NoDelete || f == 1
	}
	return n
}

func (m *WatchCreateRequest) packedFilters(b []byte) int {
	list, taken := takeBytes(b)
	for taken > 0 && len(list) > 0 {
		n := m.filter(list)
		if n <= 0 {
			return 0
		}
		list = list[n:]
	}
	return taken
}

// WatchResponse is etcdserverpb.WatchResponse.
type WatchResponse struct {
	Header  kv.Header
	WatchID int64
	// Also are further watchers of the stream that get the same response, each a message of its own. Encodings are those for WatchID.
	Also     []int64
	Created  bool
	Canceled bool
	// CompactRevision is not 0 if the watcher was canceled because of a compaction.
	CompactRevision int64
	Reason          string
	// Fragment is set on every part of a split response but the last.
	Fragment bool
	// Events are encoded mvccpb.Event messages.
	Events [][]byte
}

const eventsField = 11

// Size implements Encoder.
func (m *WatchResponse) Size() int {
	n := m.SizeFront()
	for _, ev := range m.Events {
		n += 1 + sizeBytes(len(ev))
	}
	return n
}

// AppendTo implements Encoder.
func (m *WatchResponse) AppendTo(b []byte) []byte {
	b = m.AppendFront(b)
	for _, ev := range m.Events {
		b = appendBytes(b, eventsField, ev)
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
	rest := size - sizeUint(uint64(m.WatchID))
	for _, id := range m.Also {
		size += rest + sizeUint(uint64(id))
	}
	return size
}

// SameSize reports whether the message for another watcher has the same size. Then they differ in the bytes of the id only.
func (m *WatchResponse) SameSize(id int64) bool {
	return sizeUint(uint64(id)) == sizeUint(uint64(m.WatchID))
}

// PutWatchID makes an encoding of the message that for another watcher, if it has the same size.
func (m *WatchResponse) PutWatchID(encoding []byte, id int64) {
	if id != 0 {
		binary.PutUvarint(encoding[1+sizeBytes(sizeHeader(m.Header))+1:], uint64(id))
	}
}

// Parts appends to dst slices that, end to end, are the encoding. Events of at least share bytes
// are among them as they are, not copied; the rest is in memory of its own.
func (m *WatchResponse) Parts(dst [][]byte, share int) [][]byte {
	b := m.AppendFront(make([]byte, 0, m.SizeFront()+sizeEventParts(m.Events, share)))
	return appendEventParts(dst, b, m.Events, share)
}

// EventParts is the part of Parts that follows the front. It depends on nothing but the events, so
// responses that differ only in their front may share it.
func EventParts(dst, events [][]byte, share int) [][]byte {
	return appendEventParts(dst, make([]byte, 0, sizeEventParts(events, share)), events, share)
}

// sizeEventParts is how much memory appendEventParts needs in b.
func sizeEventParts(events [][]byte, share int) int {
	n := 0
	for _, ev := range events {
		n += 1 + sizeVarint(uint64(len(ev)))
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
		b = appendLen(b, eventsField, len(ev))
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
	n := 1 + sizeBytes(sizeHeader(m.Header)) + sizeUint(uint64(m.WatchID)) + sizeBool(m.Created) +
		sizeBool(m.Canceled) + sizeUint(uint64(m.CompactRevision)) + sizeBool(m.Fragment)
	if m.Reason != "" {
		n += 1 + sizeBytes(len(m.Reason))
	}
	return n
}

// AppendFront appends everything before the events.
func (m *WatchResponse) AppendFront(b []byte) []byte {
	b = appendHeader(b, m.Header)
	b = appendUint(b, 2, uint64(m.WatchID))
	b = appendBool(b, 3, m.Created)
	b = appendBool(b, 4, m.Canceled)
	b = appendUint(b, 5, uint64(m.CompactRevision))
	if m.Reason != "" {
		b = append(appendLen(b, 6, len(m.Reason)), m.Reason...)
	}
	return appendBool(b, 7, m.Fragment)
}
