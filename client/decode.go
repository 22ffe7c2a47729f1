package client

import (
	"google.golang.org/grpc/mem"

	"vigil/client/internal/request"
	"vigil/client/pbfield"
)

// response is a message that is received. decode may keep parts of b.
//
// A decoder does not reset its message: unary calls decode each attempt into a new one. The
// messages of streams are reused, so watchResponse and leaseResponse reset themselves.
type response interface {
	decode(b []byte) error
}

// inPlace is a response that keeps nothing of the buffer unless keeps returns true.
type inPlace interface {
	response
	keepsBuffer() bool
}

// unmarshal decodes a received message. gRPC reuses its buffers afterwards, so a message that keeps
// parts is copied first, into memory of exactly its size.
func unmarshal(data mem.BufferSlice, m response) error {
	var b []byte
	if p, ok := m.(inPlace); ok && !p.keepsBuffer() && len(data) == 1 {
		b = data[0].ReadOnlyData()
	} else {
		b = data.Materialize()
	}
	if m.decode(b) != nil {
		return request.ErrMalformed
	}
	return nil
}

func (h *Header) decode(b []byte) error {
	r := pbfield.Read(b)
	for r.Next() {
		pbfield.Int(&r, 1, &h.ClusterID)
		pbfield.Int(&r, 2, &h.MemberID)
		pbfield.Int(&r, 3, &h.Revision)
		pbfield.Int(&r, 4, &h.RaftTerm)
	}
	return r.Err()
}

func (kv *KeyValue) decode(b []byte) error {
	r := pbfield.Read(b)
	for r.Next() {
		r.Text(1, &kv.Key)
		pbfield.Int(&r, 2, &kv.CreateRevision)
		pbfield.Int(&r, 3, &kv.ModRevision)
		pbfield.Int(&r, 4, &kv.Version)
		r.Bytes(5, &kv.Value)
		pbfield.Int(&r, 6, &kv.Lease)
	}
	return r.Err()
}

// decodeKVs appends a list of keys, which is field num of a message, to list.
func decodeKVs(r *pbfield.Reader, num int, list *[]KeyValue) {
	var body []byte
	for r.Message(num, &body) {
		*list = append(*list, KeyValue{})
		r.Check((*list)[len(*list)-1].decode(body))
	}
}

// decodeKV makes the key that is field num of a message.
func decodeKV(r *pbfield.Reader, num int, kv **KeyValue) {
	var body []byte
	if r.Message(num, &body) {
		*kv = new(KeyValue)
		r.Check((*kv).decode(body))
	}
}

// decodeHeader reads the header, which is field 1 of every answer.
func decodeHeader(r *pbfield.Reader, h *Header) {
	var body []byte
	if r.Message(1, &body) {
		r.Check(h.decode(body))
	}
}

func (m *GetResponse) decode(b []byte) error {
	r := pbfield.Read(b)
	if n := r.Count(2); n > 0 {
		m.KVs = make([]KeyValue, 0, n)
	}
	for r.Next() {
		decodeHeader(&r, &m.Header)
		decodeKVs(&r, 2, &m.KVs)
		r.Bool(3, &m.More)
		pbfield.Int(&r, 4, &m.Count)
	}
	return r.Err()
}

// rangeChunk is etcdserverpb.RangeStreamResponse.
type rangeChunk struct{ GetResponse }

func (m *rangeChunk) decode(b []byte) error {
	r := pbfield.Read(b)
	var body []byte
	for r.Next() {
		if r.Message(1, &body) {
			r.Check(m.GetResponse.decode(body))
		}
	}
	return r.Err()
}

func (m *PutResponse) decode(b []byte) error {
	r := pbfield.Read(b)
	for r.Next() {
		decodeHeader(&r, &m.Header)
		decodeKV(&r, 2, &m.PrevKV)
	}
	return r.Err()
}

// plainPut is the answer of a put without WithPrevKV.
type plainPut struct{ PutResponse }

func (*plainPut) keepsBuffer() bool { return false }

func (m *plainPut) decode(b []byte) error {
	err := m.PutResponse.decode(b)
	m.PrevKV = nil // it was not requested, and b is reused
	return err
}

func (m *DeleteResponse) decode(b []byte) error {
	r := pbfield.Read(b)
	if n := r.Count(3); n > 0 {
		m.PrevKVs = make([]KeyValue, 0, n)
	}
	for r.Next() {
		decodeHeader(&r, &m.Header)
		pbfield.Int(&r, 2, &m.Deleted)
		decodeKVs(&r, 3, &m.PrevKVs)
	}
	return r.Err()
}

// maxDepth bounds the nesting of transactions in answers.
const maxDepth = 1000

func (m *TxnResponse) decode(b []byte) error { return m.decodeAt(b, 0) }

func (m *TxnResponse) decodeAt(b []byte, depth int) error {
	if depth > maxDepth {
		return pbfield.ErrTooDeep
	}
	r := pbfield.Read(b)
	if n := r.Count(3); n > 0 {
		m.Responses = make([]OpResponse, 0, n)
	}
	var body []byte
	for r.Next() {
		decodeHeader(&r, &m.Header)
		r.Bool(2, &m.Succeeded)
		for r.Message(3, &body) {
			m.Responses = append(m.Responses, OpResponse{})
			r.Check(m.Responses[len(m.Responses)-1].decode(body, depth))
		}
	}
	return r.Err()
}

func (m *OpResponse) decode(b []byte, depth int) error {
	r := pbfield.Read(b)
	var body []byte
	for r.Next() {
		if r.Message(1, &body) {
			*m = OpResponse{Get: new(GetResponse)}
			r.Check(m.Get.decode(body))
		}
		if r.Message(2, &body) {
			*m = OpResponse{Put: new(PutResponse)}
			r.Check(m.Put.decode(body))
		}
		if r.Message(3, &body) {
			*m = OpResponse{Delete: new(DeleteResponse)}
			r.Check(m.Delete.decode(body))
		}
		if r.Message(4, &body) {
			*m = OpResponse{Txn: new(TxnResponse)}
			r.Check(m.Txn.decodeAt(body, depth+1))
		}
	}
	return r.Err()
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

func (m *watchResponse) decode(b []byte) error {
	*m = watchResponse{size: len(b)}
	r := pbfield.Read(b)
	if n := r.Count(11); n > 0 {
		m.events = make([]Event, 0, n)
	}
	var body []byte
	for r.Next() {
		decodeHeader(&r, &m.header)
		pbfield.Int(&r, 2, &m.id)
		r.Bool(3, &m.created)
		r.Bool(4, &m.canceled)
		pbfield.Int(&r, 5, &m.compact)
		r.Text(6, &m.reason)
		r.Bool(7, &m.fragment)
		for r.Message(11, &body) {
			m.events = append(m.events, Event{})
			r.Check(m.events[len(m.events)-1].decode(body))
		}
	}
	return r.Err()
}

func (ev *Event) decode(b []byte) error {
	r := pbfield.Read(b)
	var body []byte
	for r.Next() {
		pbfield.Int(&r, 1, &ev.Type)
		if r.Message(2, &body) {
			r.Check(ev.KV.decode(body))
		}
		decodeKV(&r, 3, &ev.PrevKV)
	}
	return r.Err()
}

// leaseResponse is etcdserverpb.LeaseKeepAliveResponse.
type leaseResponse struct {
	header Header
	id     LeaseID
	ttl    int64
}

func (*leaseResponse) keepsBuffer() bool { return false }

func (m *leaseResponse) decode(b []byte) error {
	*m = leaseResponse{}
	r := pbfield.Read(b)
	for r.Next() {
		decodeHeader(&r, &m.header)
		pbfield.Int(&r, 2, &m.id)
		pbfield.Int(&r, 3, &m.ttl)
	}
	return r.Err()
}
