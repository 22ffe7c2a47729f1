package client

import (
	"encoding/binary"
	"errors"
	"unsafe"

	"google.golang.org/grpc/mem"
)

// errMalformed: a server sent bytes that are no encoding of the message.
var errMalformed = errors.New("malformed message from the server")

// response is a message that is received. decode may keep b, which is its own.
type response interface {
	decode(b []byte) error
}

// inPlace is a response that keeps nothing of the buffer it is decoded from unless keeps says so.
type inPlace interface {
	response
	keeps() bool
}

// unmarshal decodes what gRPC received. gRPC takes its buffers back afterwards, so what a message keeps is
// copied first, into memory of exactly its size.
func unmarshal(data mem.BufferSlice, m response) error {
	if p, ok := m.(inPlace); ok && !p.keeps() && len(data) == 1 {
		return m.decode(data[0].ReadOnlyData())
	}
	return m.decode(data.Materialize())
}

// fields walks the fields of a message.
type fields struct {
	b   []byte
	bad bool
	// num and typ are those of the current field; v is a number, data the content of bytes.
	num  int
	typ  int
	v    uint64
	data []byte
}

// next moves to the next field and reports false at the end or if the rest is malformed.
func (f *fields) next() bool {
	if len(f.b) == 0 || f.bad {
		return false
	}
	tag := uint64(f.b[0])
	if tag < 0x80 {
		f.b = f.b[1:]
	} else {
		var ok bool
		if tag, ok = f.varint(); !ok {
			return false
		}
	}
	f.num, f.typ = int(tag>>3), int(tag&7)
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		f.bad = true
		return false
	}
	ok := true
	switch f.typ {
	case typeVarint:
		f.v, ok = f.varint()
	case typeBytes:
		var n uint64
		if n, ok = f.varint(); !ok {
			return false
		}
		if n > uint64(len(f.b)) {
			f.bad = true
			return false
		}
		f.data, f.b = f.b[:n:n], f.b[n:]
	case typeFixed64:
		ok = f.drop(8)
	case typeFixed32:
		ok = f.drop(4)
	default: // groups are not in any message of the API
		f.bad = true
		return false
	}
	return ok
}

func (f *fields) varint() (uint64, bool) {
	v, n := binary.Uvarint(f.b)
	if n <= 0 {
		f.bad = true
		return 0, false
	}
	f.b = f.b[n:]
	return v, true
}

func (f *fields) drop(n int) bool {
	if len(f.b) < n {
		f.bad = true
		return false
	}
	f.b = f.b[n:]
	return true
}

// is reports whether the current field has this number and type. One of another type is skipped, as if its
// number were unknown.
func (f *fields) is(num, typ int) bool { return f.num == num && f.typ == typ }

// text returns bytes as a string that shares their memory. Nothing changes them: a message's buffer is
// handed out in parts that do not overlap and cannot grow into each other.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

func (f *fields) err() error {
	if f.bad {
		return errMalformed
	}
	return nil
}

// count returns how many fields of bytes with this number are in b, so that memory for all is taken at once.
func count(b []byte, num int) (n int) {
	f := fields{b: b}
	for f.next() {
		if f.is(num, typeBytes) {
			n++
		}
	}
	return n
}

func (h *Header) decode(b []byte) error {
	f := fields{b: b}
	for f.next() {
		if f.typ != typeVarint {
			continue
		}
		switch f.num {
		case 1:
			h.ClusterID = f.v
		case 2:
			h.MemberID = f.v
		case 3:
			h.Revision = int64(f.v)
		case 4:
			h.RaftTerm = f.v
		}
	}
	return f.err()
}

func (kv *KeyValue) decode(b []byte) error {
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, typeBytes):
			kv.Key = text(f.data)
		case f.is(2, typeVarint):
			kv.CreateRevision = int64(f.v)
		case f.is(3, typeVarint):
			kv.ModRevision = int64(f.v)
		case f.is(4, typeVarint):
			kv.Version = int64(f.v)
		case f.is(5, typeBytes):
			kv.Value = f.data
		case f.is(6, typeVarint):
			kv.Lease = LeaseID(f.v)
		}
	}
	return f.err()
}

func decodeKV(b []byte) (*KeyValue, error) {
	kv := new(KeyValue)
	return kv, kv.decode(b)
}

func (r *GetResponse) decode(b []byte) error {
	f := fields{b: b}
	if n := count(b, 2); n > 0 {
		r.KVs = make([]KeyValue, 0, n)
	}
	for f.next() {
		var e error
		switch {
		case f.is(1, typeBytes):
			e = r.Header.decode(f.data)
		case f.is(2, typeBytes):
			r.KVs = append(r.KVs, KeyValue{})
			e = r.KVs[len(r.KVs)-1].decode(f.data)
		case f.is(3, typeVarint):
			r.More = f.v != 0
		case f.is(4, typeVarint):
			r.Count = int64(f.v)
		}
		if e != nil {
			return e
		}
	}
	return f.err()
}

// rangeChunk is etcdserverpb.RangeStreamResponse.
type rangeChunk struct{ GetResponse }

func (r *rangeChunk) decode(b []byte) error {
	f := fields{b: b}
	for f.next() {
		if f.is(1, typeBytes) {
			if e := r.GetResponse.decode(f.data); e != nil {
				return e
			}
		}
	}
	return f.err()
}

func (r *PutResponse) decode(b []byte) error {
	f := fields{b: b}
	for f.next() {
		var e error
		switch {
		case f.is(1, typeBytes):
			e = r.Header.decode(f.data)
		case f.is(2, typeBytes):
			r.PrevKV, e = decodeKV(f.data)
		}
		if e != nil {
			return e
		}
	}
	return f.err()
}

// plainPut is the answer of a put that did not ask for the key before.
type plainPut struct{ PutResponse }

func (*plainPut) keeps() bool { return false }

func (r *plainPut) decode(b []byte) error {
	e := r.PutResponse.decode(b)
	r.PrevKV = nil // it was not asked for, and b is not ours
	return e
}

func (r *DeleteResponse) decode(b []byte) error {
	f := fields{b: b}
	if n := count(b, 3); n > 0 {
		r.PrevKVs = make([]KeyValue, 0, n)
	}
	for f.next() {
		var e error
		switch {
		case f.is(1, typeBytes):
			e = r.Header.decode(f.data)
		case f.is(2, typeVarint):
			r.Deleted = int64(f.v)
		case f.is(3, typeBytes):
			r.PrevKVs = append(r.PrevKVs, KeyValue{})
			e = r.PrevKVs[len(r.PrevKVs)-1].decode(f.data)
		}
		if e != nil {
			return e
		}
	}
	return f.err()
}

// maxDepth is how deep answers of transactions may nest.
const maxDepth = 1000

func (r *TxnResponse) decode(b []byte) error { return r.decodeAt(b, 0) }

func (r *TxnResponse) decodeAt(b []byte, depth int) error {
	if depth > maxDepth {
		return errMalformed
	}
	f := fields{b: b}
	if n := count(b, 3); n > 0 {
		r.Responses = make([]OpResponse, 0, n)
	}
	for f.next() {
		var e error
		switch {
		case f.is(1, typeBytes):
			e = r.Header.decode(f.data)
		case f.is(2, typeVarint):
			r.Succeeded = f.v != 0
		case f.is(3, typeBytes):
			r.Responses = append(r.Responses, OpResponse{})
			e = r.Responses[len(r.Responses)-1].decode(f.data, depth)
		}
		if e != nil {
			return e
		}
	}
	return f.err()
}

func (r *OpResponse) decode(b []byte, depth int) error {
	f := fields{b: b}
	for f.next() {
		if f.typ != typeBytes {
			continue
		}
		var e error
		switch f.num {
		case 1:
			*r = OpResponse{Get: new(GetResponse)}
			e = r.Get.decode(f.data)
		case 2:
			*r = OpResponse{Put: new(PutResponse)}
			e = r.Put.decode(f.data)
		case 3:
			*r = OpResponse{Delete: new(DeleteResponse)}
			e = r.Delete.decode(f.data)
		case 4:
			*r = OpResponse{Txn: new(TxnResponse)}
			e = r.Txn.decodeAt(f.data, depth+1)
		}
		if e != nil {
			return e
		}
	}
	return f.err()
}

// watchResponse is etcdserverpb.WatchResponse.
type watchResponse struct {
	header   Header
	id       int64
	created  bool
	canceled bool
	compact  int64
	reason   string
	fragment bool
	events   []Event
	// size is what the message took, in bytes.
	size int
}

func (r *watchResponse) decode(b []byte) error {
	*r = watchResponse{size: len(b)}
	f := fields{b: b}
	if n := count(b, 11); n > 0 {
		r.events = make([]Event, 0, n)
	}
	for f.next() {
		var e error
		switch {
		case f.is(11, typeBytes):
			r.events = append(r.events, Event{})
			e = r.events[len(r.events)-1].decode(f.data)
		case f.is(1, typeBytes):
			e = r.header.decode(f.data)
		case f.is(2, typeVarint):
			r.id = int64(f.v)
		case f.is(3, typeVarint):
			r.created = f.v != 0
		case f.is(4, typeVarint):
			r.canceled = f.v != 0
		case f.is(5, typeVarint):
			r.compact = int64(f.v)
		case f.is(6, typeBytes):
			r.reason = text(f.data)
		case f.is(7, typeVarint):
			r.fragment = f.v != 0
		}
		if e != nil {
			return e
		}
	}
	return f.err()
}

func (ev *Event) decode(b []byte) error {
	f := fields{b: b}
	for f.next() {
		var e error
		switch {
		case f.is(1, typeVarint):
			ev.Type = EventType(f.v)
		case f.is(2, typeBytes):
			e = ev.KV.decode(f.data)
		case f.is(3, typeBytes):
			ev.PrevKV, e = decodeKV(f.data)
		}
		if e != nil {
			return e
		}
	}
	return f.err()
}

// leaseResponse is etcdserverpb.LeaseKeepAliveResponse.
type leaseResponse struct {
	header Header
	id     LeaseID
	ttl    int64
}

func (*leaseResponse) keeps() bool { return false }

func (r *leaseResponse) decode(b []byte) error {
	*r = leaseResponse{}
	f := fields{b: b}
	for f.next() {
		switch {
		case f.is(1, typeBytes):
			if e := r.header.decode(f.data); e != nil {
				return e
			}
		case f.is(2, typeVarint):
			r.id = LeaseID(f.v)
		case f.is(3, typeVarint):
			r.ttl = int64(f.v)
		}
	}
	return f.err()
}
