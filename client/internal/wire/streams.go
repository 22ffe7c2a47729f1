package wire

import "google.golang.org/grpc/mem"

// WatchRequest is etcdserverpb.WatchRequest: a create if Create is set, a cancel if Cancel is, otherwise a request
// for progress.
type WatchRequest struct {
	Attempt
	Create *WatchCreate
	Cancel *int64 // a watch id
}

// Progress reports whether it is the request for the progress of the stream.
func (r *WatchRequest) Progress() bool { return r.Create == nil && r.Cancel == nil }

// WatchCreate is etcdserverpb.WatchCreateRequest. It always asks for fragments.
type WatchCreate struct {
	Key, End        string
	Start           int64
	ID              int64
	Progress        bool
	NoPut, NoDelete bool
	PrevKV          bool
}

// Marshal implements Request.
func (r *WatchRequest) Marshal() (mem.BufferSlice, error) {
	n := 16
	if r.Create != nil {
		n = len(r.Create.Key) + len(r.Create.End) + fieldSlack
	}
	return r.buffers(r.append(make([]byte, 0, n)))
}

func (r *WatchRequest) append(b []byte) []byte {
	var at int
	switch {
	case r.Create != nil:
		b, at = beginMessage(b, 1)
		return endMessage(r.Create.append(b), at)
	case r.Cancel != nil:
		b, at = beginMessage(b, 2)
		return endMessage(appendInt(b, 1, *r.Cancel), at)
	default:
		b, at = beginMessage(b, 3)
		return endMessage(b, at)
	}
}

func (r *WatchCreate) append(b []byte) []byte {
	b = appendBytes(b, 1, r.Key)
	b = appendBytes(b, 2, r.End)
	b = appendInt(b, 3, r.Start)
	b = appendBool(b, 4, r.Progress)
	if r.NoPut || r.NoDelete {
		var at int
		b, at = beginMessage(b, 5)
		if r.NoPut {
			b = append(b, 0)
		}
		if r.NoDelete {
			b = append(b, 1)
		}
		b = endMessage(b, at)
	}
	b = appendBool(b, 6, r.PrevKV)
	b = appendInt(b, 7, r.ID)
	return appendBool(b, 8, true)
}

// KeepAliveRequest is etcdserverpb.LeaseKeepAliveRequest.
type KeepAliveRequest struct {
	Attempt
	ID int64
}

// Marshal implements Request.
func (r *KeepAliveRequest) Marshal() (mem.BufferSlice, error) {
	return r.buffers(appendInt(make([]byte, 0, 16), 1, r.ID))
}
