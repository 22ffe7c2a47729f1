package wire

import "vigil/internal/kv"

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
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		switch tag {
		case 1<<3 | typeVarint:
			n = takeInt64(b, &m.TTL)
		case 2<<3 | typeVarint:
			n = takeInt64(b, &m.ID)
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

// Decode implements Decoder.
func (m *LeaseKeepAliveRequest) Decode(b []byte) error {
	for len(b) > 0 {
		tag, n := takeVarint(b)
		if n <= 0 {
			return ErrInvalid
		}
		b = b[n:]
		var err error
		if tag == 1<<3|typeVarint {
			n = takeInt64(b, &m.ID)
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

// LeaseResponse is etcdserverpb.LeaseGrantResponse, without an error text, and etcdserverpb.LeaseKeepAliveResponse.
type LeaseResponse struct {
	Header  kv.Header
	ID, TTL int64
}

// Size implements Encoder.
func (m *LeaseResponse) Size() int {
	return 1 + sizeBytes(sizeHeader(m.Header)) + sizeUint(uint64(m.ID)) + sizeUint(uint64(m.TTL))
}

// AppendTo implements Encoder.
func (m *LeaseResponse) AppendTo(b []byte) []byte {
	return appendUint(appendUint(appendHeader(b, m.Header), 2, uint64(m.ID)), 3, uint64(m.TTL))
}
