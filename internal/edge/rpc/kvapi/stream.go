package kvapi

import (
	"bytes"

	"vigil/internal/edge/rpc/apierror"
	"vigil/internal/edge/rpc/timesapi"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/edge/rpc/validate"
	"vigil/internal/edge/rpc/wire"
	"vigil/internal/kv"
)

// firstChunk is the number of keys in the first chunk of a streamed range; the next chunks are made
// larger or smaller until their size is near MaxRequestBytes.
const firstChunk = 10

// streamRange answers a range in chunks that are all read at one revision: the one that the request
// names, or the newest at the first chunk.
func (a *API) streamRange(r *wire.RangeRequest, stream transport.Stream) error {
	ctx := stream.Context()
	if err := validate.RangeStream(&r.RangeRequest); err != nil {
		return err
	}
	transport.SendUncompressed(ctx)
	at, err := timesapi.Request(ctx, a.Times, &r.RangeRequest)
	if err != nil {
		return err
	}
	req := *at
	// The sort target has no meaning without an order, and the next chunk begins after the last key
	// of this one.
	req.Sort, req.Order = kv.SortByKey, kv.SortNone
	limited, left := req.Limit > 0, req.Limit
	size := int64(firstChunk)
	var newest, count int64
	ctx = a.Deliveries.WithHolders(ctx)
	for first := true; ; first = false {
		req.Limit = size
		if limited {
			req.Limit = min(size, left)
		}
		if req.CountOnly {
			req.Limit = 0
		}
		res, err := a.Store.Range(ctx, &req)
		if err != nil {
			return apierror.Status(err)
		}
		if first {
			newest, count = res.Revision, res.Count
			if req.Revision <= 0 {
				req.Revision = newest
			}
			// The first chunk was read linearizably; the others are of the same state.
			req.Serializable, req.NoCount = true, true
		}
		n := int64(res.KVs.Len())
		left -= n
		// A chunk without keys is the last one, even if it says that there are more.
		last := !res.More || limited && left <= 0 || n == 0
		if last {
			res.Count = count
		} else {
			req.Key, size = keyAfter(&res.KVs), nextChunk(size, res.KVs.Size(), a.MaxRequestBytes)
		}
		// The transport owns a message that was sent.
		a.Deliveries.TrackLists(ctx, res)
		if err := stream.SendMsg(&wire.RangeStreamResponse{Header: a.headerAt(newest), Result: res,
			Last: last}); err != nil || last {
			return err
		}
	}
}

// keyAfter returns the least key after the last one of a list.
func keyAfter(r *kv.Records) []byte {
	if r.Long != nil {
		return []byte(r.Long.Last + "\x00")
	}
	return append(bytes.Clone(wire.RecordKey(r.At(r.Len()-1))), 0)
}

// nextChunk returns how many keys the next chunk should have if the last one of size keys had that
// many bytes.
func nextChunk(size int64, took, target int) int64 {
	switch {
	case took < target/2:
		return size * 2
	case took > target*2:
		return max(size/2, 1)
	}
	return size
}
