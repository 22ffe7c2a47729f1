package client

import (
	"google.golang.org/grpc/mem"

	"vigil/client/internal/wire"
)

// response is a message that is received. decode may keep parts of b.
//
// A decoder does not reset its message: unary calls decode each attempt into a new one. The messages of streams are
// reused, so watchResponse and leaseResponse reset themselves.
type response interface {
	decode(b []byte) error
}

// inPlace is a response that keeps nothing of the buffer unless keeps returns true.
type inPlace interface {
	response
	keeps() bool
}

// unmarshal decodes a received message. gRPC reuses its buffers afterwards, so a message that keeps parts is copied
// first, into memory of exactly its size.
func unmarshal(data mem.BufferSlice, m response) error {
	if p, ok := m.(inPlace); ok && !p.keeps() && len(data) == 1 {
		return m.decode(data[0].ReadOnlyData())
	}
	return m.decode(data.Materialize())
}

func (h *Header) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		if f.Type != wire.TypeVarint {
			continue
		}
		switch f.Num {
		case 1:
			h.ClusterID = f.Varint
		case 2:
			h.MemberID = f.Varint
		case 3:
			h.Revision = int64(f.Varint)
		case 4:
			h.RaftTerm = f.Varint
		}
	}
	return f.Err()
}

func (kv *KeyValue) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeBytes):
			kv.Key = wire.Text(f.Bytes)
		case f.Is(2, wire.TypeVarint):
			kv.CreateRevision = int64(f.Varint)
		case f.Is(3, wire.TypeVarint):
			kv.ModRevision = int64(f.Varint)
		case f.Is(4, wire.TypeVarint):
			kv.Version = int64(f.Varint)
		case f.Is(5, wire.TypeBytes):
			kv.Value = f.Bytes
		case f.Is(6, wire.TypeVarint):
			kv.Lease = LeaseID(f.Varint)
		}
	}
	return f.Err()
}

func (r *GetResponse) decode(b []byte) error {
	f := wire.Read(b)
	if n := wire.Count(b, 2); n > 0 {
		r.KVs = make([]KeyValue, 0, n)
	}
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeBytes):
			f.Check(r.Header.decode(f.Bytes))
		case f.Is(2, wire.TypeBytes):
			r.KVs = append(r.KVs, KeyValue{})
			f.Check(r.KVs[len(r.KVs)-1].decode(f.Bytes))
		case f.Is(3, wire.TypeVarint):
			r.More = f.Varint != 0
		case f.Is(4, wire.TypeVarint):
			r.Count = int64(f.Varint)
		}
	}
	return f.Err()
}

// rangeChunk is etcdserverpb.RangeStreamResponse.
type rangeChunk struct{ GetResponse }

func (r *rangeChunk) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		if f.Is(1, wire.TypeBytes) {
			f.Check(r.GetResponse.decode(f.Bytes))
		}
	}
	return f.Err()
}

func (r *PutResponse) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeBytes):
			f.Check(r.Header.decode(f.Bytes))
		case f.Is(2, wire.TypeBytes):
			r.PrevKV = new(KeyValue)
			f.Check(r.PrevKV.decode(f.Bytes))
		}
	}
	return f.Err()
}

// plainPut is the answer of a put without WithPrevKV.
type plainPut struct{ PutResponse }

func (*plainPut) keeps() bool { return false }

func (r *plainPut) decode(b []byte) error {
	e := r.PutResponse.decode(b)
	r.PrevKV = nil // it was not requested, and b is reused
	return e
}

func (r *DeleteResponse) decode(b []byte) error {
	f := wire.Read(b)
	if n := wire.Count(b, 3); n > 0 {
		r.PrevKVs = make([]KeyValue, 0, n)
	}
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeBytes):
			f.Check(r.Header.decode(f.Bytes))
		case f.Is(2, wire.TypeVarint):
			r.Deleted = int64(f.Varint)
		case f.Is(3, wire.TypeBytes):
			r.PrevKVs = append(r.PrevKVs, KeyValue{})
			f.Check(r.PrevKVs[len(r.PrevKVs)-1].decode(f.Bytes))
		}
	}
	return f.Err()
}

// maxDepth bounds the nesting of transactions in answers.
const maxDepth = 1000

func (r *TxnResponse) decode(b []byte) error { return r.decodeAt(b, 0) }

func (r *TxnResponse) decodeAt(b []byte, depth int) error {
	if depth > maxDepth {
		return wire.ErrMalformed
	}
	f := wire.Read(b)
	if n := wire.Count(b, 3); n > 0 {
		r.Responses = make([]OpResponse, 0, n)
	}
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeBytes):
			f.Check(r.Header.decode(f.Bytes))
		case f.Is(2, wire.TypeVarint):
			r.Succeeded = f.Varint != 0
		case f.Is(3, wire.TypeBytes):
			r.Responses = append(r.Responses, OpResponse{})
			f.Check(r.Responses[len(r.Responses)-1].decode(f.Bytes, depth))
		}
	}
	return f.Err()
}

func (r *OpResponse) decode(b []byte, depth int) error {
	f := wire.Read(b)
	for f.Next() {
		if f.Type != wire.TypeBytes {
			continue
		}
		switch f.Num {
		case 1:
			*r = OpResponse{Get: new(GetResponse)}
			f.Check(r.Get.decode(f.Bytes))
		case 2:
			*r = OpResponse{Put: new(PutResponse)}
			f.Check(r.Put.decode(f.Bytes))
		case 3:
			*r = OpResponse{Delete: new(DeleteResponse)}
			f.Check(r.Delete.decode(f.Bytes))
		case 4:
			*r = OpResponse{Txn: new(TxnResponse)}
			f.Check(r.Txn.decodeAt(f.Bytes, depth+1))
		}
	}
	return f.Err()
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
	// size is the size of the message in bytes.
	size int
}

func (r *watchResponse) decode(b []byte) error {
	*r = watchResponse{size: len(b)}
	f := wire.Read(b)
	if n := wire.Count(b, 11); n > 0 {
		r.events = make([]Event, 0, n)
	}
	for f.Next() {
		switch {
		case f.Is(11, wire.TypeBytes):
			r.events = append(r.events, Event{})
			f.Check(r.events[len(r.events)-1].decode(f.Bytes))
		case f.Is(1, wire.TypeBytes):
			f.Check(r.header.decode(f.Bytes))
		case f.Is(2, wire.TypeVarint):
			r.id = int64(f.Varint)
		case f.Is(3, wire.TypeVarint):
			r.created = f.Varint != 0
		case f.Is(4, wire.TypeVarint):
			r.canceled = f.Varint != 0
		case f.Is(5, wire.TypeVarint):
			r.compact = int64(f.Varint)
		case f.Is(6, wire.TypeBytes):
			r.reason = wire.Text(f.Bytes)
		case f.Is(7, wire.TypeVarint):
			r.fragment = f.Varint != 0
		}
	}
	return f.Err()
}

func (ev *Event) decode(b []byte) error {
	f := wire.Read(b)
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeVarint):
			ev.Type = EventType(f.Varint)
		case f.Is(2, wire.TypeBytes):
			f.Check(ev.KV.decode(f.Bytes))
		case f.Is(3, wire.TypeBytes):
			ev.PrevKV = new(KeyValue)
			f.Check(ev.PrevKV.decode(f.Bytes))
		}
	}
	return f.Err()
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
	f := wire.Read(b)
	for f.Next() {
		switch {
		case f.Is(1, wire.TypeBytes):
			f.Check(r.header.decode(f.Bytes))
		case f.Is(2, wire.TypeVarint):
			r.id = LeaseID(f.Varint)
		case f.Is(3, wire.TypeVarint):
			r.ttl = int64(f.Varint)
		}
	}
	return f.Err()
}
