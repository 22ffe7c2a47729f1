package wire

import (
	"sync"

	"vigil/internal/kv"
)

// Most gets are answered at once. The memory of these requests and of their answers is reused.
var (
	rangeRequests = sync.Pool{New: func() any { return new(RangeRequest) }}
	getAnswers    = sync.Pool{New: func() any { return new(GetAnswer) }}
)

// GetAnswer is a RangeResponse for one key, with the memory of its result.
type GetAnswer struct {
	RangeResponse
	Memory kv.GetResult
}

// NewRangeRequest returns an empty request.
func NewRangeRequest() *RangeRequest { return rangeRequests.Get().(*RangeRequest) }

// MakeAnswer returns an empty answer to a get, which belongs to the request.
func (m *RangeRequest) MakeAnswer() *GetAnswer {
	if m.get == nil {
		m.get = getAnswers.Get().(*GetAnswer)
	}
	return m.get
}

// DropAnswer ends the use of the answer.
func (m *RangeRequest) DropAnswer() {
	if m.get != nil {
		*m.get = GetAnswer{}
		getAnswers.Put(m.get)
		m.get = nil
	}
}

// Free ends the use of a request and of its answer.
func (m *RangeRequest) Free() {
	m.DropAnswer()
	*m = RangeRequest{}
	rangeRequests.Put(m)
}
