package wire

import (
	"encoding/binary"

	"google.golang.org/grpc/mem"
)

// RevisionAtRequest is vigil.RevisionAtRequest.
type RevisionAtRequest struct {
	Attempt
	Time         int64 // in milliseconds since 1970
	Serializable bool
}

// Marshal implements Request.
func (r *RevisionAtRequest) Marshal() (mem.BufferSlice, error) {
	return r.buffers(appendBool(appendInt(nil, 1, r.Time), 2, r.Serializable))
}

// SpansRequest is vigil.SpansRequest.
type SpansRequest struct {
	Attempt
	Revisions []int64
}

// Marshal implements Request.
func (r *SpansRequest) Marshal() (mem.BufferSlice, error) {
	if len(r.Revisions) == 0 {
		return r.buffers(nil)
	}
	b, at := beginMessage(nil, 1) // packed
	for _, rev := range r.Revisions {
		b = binary.AppendUvarint(b, uint64(rev))
	}
	return r.buffers(endMessage(b, at))
}
