package wire

import (
	"vigil/client/pbfield"
	"vigil/internal/kv"
)

// LeaseGrantRequest is etcdserverpb.LeaseGrantRequest.
type LeaseGrantRequest struct {
	kv.LeaseGrantRequest
	// Len is the length of the encoding in bytes.
	Len int
}

// LeaseKeepAliveRequest is etcdserverpb.LeaseKeepAliveRequest.
type LeaseKeepAliveRequest struct{ ID int64 }

// Decode implements Decoder.
func (m *LeaseGrantRequest) Decode(b []byte) error {
	m.Len = len(b)
	r := pbfield.Read(b)
	for r.Next() {
		pbfield.Int(&r, 1, &m.TTL)
		pbfield.Int(&r, 2, &m.ID)
	}
	return r.Err()
}

// Decode implements Decoder.
func (m *LeaseKeepAliveRequest) Decode(b []byte) error {
	r := pbfield.Read(b)
	for r.Next() {
		pbfield.Int(&r, 1, &m.ID)
	}
	return r.Err()
}

// LeaseResponse is etcdserverpb.LeaseGrantResponse, without an error text, and
// etcdserverpb.LeaseKeepAliveResponse.
type LeaseResponse struct {
	Header  kv.Header
	ID, TTL int64
}

// Size implements Encoder.
func (m *LeaseResponse) Size() int {
	return 1 + pbfield.SizeBytes(sizeHeader(m.Header)) + sizeInt(uint64(m.ID)) +
		sizeInt(uint64(m.TTL))
}

// AppendTo implements Encoder.
func (m *LeaseResponse) AppendTo(b []byte) []byte {
	return pbfield.AppendInt(pbfield.AppendInt(appendHeader(b, m.Header), 2, uint64(m.ID)),
		3, uint64(m.TTL))
}
