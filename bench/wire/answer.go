package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error about bytes that are no protobuf of the expected shape.
var ErrMalformed = errors.New("malformed answer")

// walk calls f with each field of a message: the number, and the varint or the bytes.
func walk(b []byte, f func(field int, v uint64, p []byte) error) error {
	for len(b) > 0 {
		field, v, p, rest, err := next(b)
		if err != nil {
			return err
		}
		if err := f(field, v, p); err != nil {
			return err
		}
		b = rest
	}
	return nil
}

// next reads one field.
func next(b []byte) (field int, v uint64, p, rest []byte, err error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 {
		return 0, 0, nil, nil, fmt.Errorf("%w: tag", ErrMalformed)
	}
	b = b[n:]
	switch tag & 7 {
	case 0:
		v, n = binary.Uvarint(b)
		if n <= 0 {
			return 0, 0, nil, nil, fmt.Errorf("%w: varint", ErrMalformed)
		}
		return int(tag >> 3), v, nil, b[n:], nil
	case 2:
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return 0, 0, nil, nil, fmt.Errorf("%w: length", ErrMalformed)
		}
		end := n + int(size)
		return int(tag >> 3), 0, b[n:end:end], b[end:], nil
	case 1:
		n = 8
	case 5:
		n = 4
	default:
		return 0, 0, nil, nil, fmt.Errorf("%w: wire type %d", ErrMalformed, tag&7)
	}
	if len(b) < n {
		return 0, 0, nil, nil, fmt.Errorf("%w: fixed", ErrMalformed)
	}
	return int(tag >> 3), 0, nil, b[n:], nil
}

// Header is the part of a response header that is looked at.
type Header struct {
	ClusterID, MemberID uint64
	Revision            int64
	Term                uint64
}

func (h *Header) read(b []byte) error {
	for len(b) > 0 {
		field, v, _, rest, err := next(b)
		if err != nil {
			return err
		}
		switch field {
		case 1:
			h.ClusterID = v
		case 2:
			h.MemberID = v
		case 3:
			h.Revision = int64(v)
		case 4:
			h.Term = v
		}
		b = rest
	}
	return nil
}

// KeyValue is a key with its record.
type KeyValue struct {
	Key, Value                  []byte
	Create, Mod, Version, Lease int64
}

func (kv *KeyValue) read(b []byte) error {
	*kv = KeyValue{}
	for len(b) > 0 {
		field, v, p, rest, err := next(b)
		if err != nil {
			return err
		}
		switch field {
		case 1:
			kv.Key = p
		case 2:
			kv.Create = int64(v)
		case 3:
			kv.Mod = int64(v)
		case 4:
			kv.Version = int64(v)
		case 5:
			kv.Value = p
		case 6:
			kv.Lease = int64(v)
		}
		b = rest
	}
	return nil
}

// RangeAnswer is a RangeResponse without its keys.
type RangeAnswer struct {
	Header Header
	Keys   int // how many keys came
	More   bool
	Count  int64
}

// Read walks a RangeResponse and hands every key to each, which may be nil.
func (a *RangeAnswer) Read(b []byte, each func(kv *KeyValue) error) error {
	*a = RangeAnswer{}
	var kv KeyValue
	return walk(b, func(field int, v uint64, p []byte) error {
		switch field {
		case 1:
			return a.Header.read(p)
		case 2:
			a.Keys++
			if each == nil {
				return nil
			}
			if err := kv.read(p); err != nil {
				return err
			}
			return each(&kv)
		case 3:
			a.More = v != 0
		case 4:
			a.Count = int64(v)
		}
		return nil
	})
}

// ReadHeader reads the header of any answer: all of them carry it as their first field.
func ReadHeader(b []byte) (Header, error) {
	var h Header
	err := walk(b, func(field int, _ uint64, p []byte) error {
		if field == 1 {
			return h.read(p)
		}
		return nil
	})
	return h, err
}

// TxnAnswer is a TxnResponse without the responses of its operations, which are only counted.
type TxnAnswer struct {
	Header    Header
	Succeeded bool
	Responses int
}

// Read walks a TxnResponse.
func (a *TxnAnswer) Read(b []byte) error {
	*a = TxnAnswer{}
	return walk(b, func(field int, v uint64, p []byte) error {
		switch field {
		case 1:
			return a.Header.read(p)
		case 2:
			a.Succeeded = v != 0
		case 3:
			a.Responses++
		}
		return nil
	})
}

// StatusAnswer is a part of Maintenance.Status.
type StatusAnswer struct {
	Header              Header
	Version             string
	DBSize, DBSizeInUse int64
	Leader              uint64
}

// Read walks a StatusResponse.
func (a *StatusAnswer) Read(b []byte) error {
	*a = StatusAnswer{}
	return walk(b, func(field int, v uint64, p []byte) error {
		switch field {
		case 1:
			return a.Header.read(p)
		case 2:
			a.Version = string(p)
		case 3:
			a.DBSize = int64(v)
		case 4:
			a.Leader = v
		case 9:
			a.DBSizeInUse = int64(v)
		}
		return nil
	})
}

// Event is one event of a watch.
type Event struct {
	Delete bool
	KV     KeyValue
	Prev   int // bytes of prev_kv, 0 if there is none
}

// WatchAnswer is a WatchResponse without its events.
type WatchAnswer struct {
	Revision, WatchID, CompactRevision int64
	Created, Canceled, Fragment        bool
	Reason                             string
	Events                             int
}

// Read walks a WatchResponse. The events come after everything else in the encoding of both systems,
// but that is not relied on: they are handed to each, which may be nil, in a second walk.
func (a *WatchAnswer) Read(b []byte, each func(ev *Event) error) error {
	*a = WatchAnswer{}
	for p := b; len(p) > 0; {
		field, v, body, rest, err := next(p)
		if err != nil {
			return err
		}
		switch field {
		case 1:
			var h Header
			if err := h.read(body); err != nil {
				return err
			}
			a.Revision = h.Revision
		case 2:
			a.WatchID = int64(v)
		case 3:
			a.Created = v != 0
		case 4:
			a.Canceled = v != 0
		case 5:
			a.CompactRevision = int64(v)
		case 6:
			a.Reason = string(body)
		case 7:
			a.Fragment = v != 0
		case 11:
			a.Events++
		}
		p = rest
	}
	if each == nil || a.Events == 0 {
		return nil
	}
	var ev Event
	for p := b; len(p) > 0; {
		field, _, body, rest, err := next(p)
		if err != nil {
			return err
		}
		if field == 11 {
			if err := ev.read(body); err != nil {
				return err
			}
			if err := each(&ev); err != nil {
				return err
			}
		}
		p = rest
	}
	return nil
}

func (e *Event) read(b []byte) error {
	*e = Event{}
	for len(b) > 0 {
		field, v, p, rest, err := next(b)
		if err != nil {
			return err
		}
		switch field {
		case 1:
			e.Delete = v == 1
		case 2:
			if err := e.KV.read(p); err != nil {
				return err
			}
		case 3:
			e.Prev = len(p)
		}
		b = rest
	}
	return nil
}

// LeaseAnswer is a LeaseGrantResponse or a LeaseKeepAliveResponse.
type LeaseAnswer struct {
	Header  Header
	ID, TTL int64
	Error   string
}

// Read walks either response.
func (a *LeaseAnswer) Read(b []byte) error {
	*a = LeaseAnswer{}
	return walk(b, func(field int, v uint64, p []byte) error {
		switch field {
		case 1:
			return a.Header.read(p)
		case 2:
			a.ID = int64(v)
		case 3:
			a.TTL = int64(v)
		case 4:
			a.Error = string(p)
		}
		return nil
	})
}
