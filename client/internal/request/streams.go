package request

import (
	"google.golang.org/grpc/mem"

	"vigil/client/pbfield"
)

// Watch is etcdserverpb.WatchRequest: a create if Create is set, a cancel if Cancel is, otherwise a
// request for progress.
type Watch struct {
	Attempt
	Create *WatchCreate
	Cancel *int64 // a watch id
}

// Progress reports whether it is the request for the progress of the stream.
func (r *Watch) Progress() bool { return r.Create == nil && r.Cancel == nil }

// WatchCreate is etcdserverpb.WatchCreateRequest. It always asks for fragments.
type WatchCreate struct {
	Key, End        string
	Start           int64
	ID              int64
	Progress        bool
	NoPut, NoDelete bool
	PrevKV          bool
}

// Marshal implements Encoder.
func (r *Watch) Marshal() (mem.BufferSlice, error) {
	n := 16
	if r.Create != nil {
		n = len(r.Create.Key) + len(r.Create.End) + fieldSlack
	}
	return r.buffers(r.append(make([]byte, 0, n)))
}

func (r *Watch) append(b []byte) []byte {
	var at int
	switch {
	case r.Create != nil:
		b, at = pbfield.BeginMessage(b, 1)
		return pbfield.EndMessage(r.Create.append(b), at)
	case r.Cancel != nil:
		b, at = pbfield.BeginMessage(b, 2)
		return pbfield.EndMessage(pbfield.AppendInt(b, 1, *r.Cancel), at)
	default:
		b, at = pbfield.BeginMessage(b, 3)
		return pbfield.EndMessage(b, at)
	}
}

func (r *WatchCreate) append(b []byte) []byte {
	b = pbfield.AppendBytes(b, 1, r.Key)
	b = pbfield.AppendBytes(b, 2, r.End)
	b = pbfield.AppendInt(b, 3, r.Start)
	b = pbfield.AppendBool(b, 4, r.Progress)
	if r.NoPut || r.NoDelete {
		var at int
		b, at = pbfield.BeginMessage(b, 5)
		if r.NoPut {
			b = append(b, 0)
		}
		if r.NoDelete {
			b = append(b, 1)
		}
		b = pbfield.EndMessage(b, at)
	}
	b = pbfield.AppendBool(b, 6, r.PrevKV)
	b = pbfield.AppendInt(b, 7, r.ID)
	return pbfield.AppendBool(b, 8, true)
}

// KeepAlive is etcdserverpb.LeaseKeepAliveRequest.
type KeepAlive struct {
	Attempt
	ID int64
}

// Marshal implements Encoder.
func (r *KeepAlive) Marshal() (mem.BufferSlice, error) {
	return r.buffers(pbfield.AppendInt(make([]byte, 0, 16), 1, r.ID))
}
