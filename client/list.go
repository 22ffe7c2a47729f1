package client

import (
	"context"
	"fmt"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client/internal/pool"
	"vigil/client/internal/request"
)

var (
	rangeStreamMethod = read("KV", "RangeStream", "list")
	rangeStreamDesc   = &grpc.StreamDesc{StreamName: "RangeStream", ServerStreams: true}
)

const (
	// firstPage is how many keys are requested first: their answer fixes the revision of the
	// listing.
	firstPage = 100
	// maxPage bounds the keys of a page, and pageBytes is its intended size.
	maxPage   = 1000
	pageBytes = 4 << 20
)

// Listing reads a range of any size piece by piece, all at one revision. It can be read once, by
// one goroutine.
type Listing struct {
	c   *Client
	ctx context.Context
	r   request.Range
	key string // without namespace, for errors

	page    int64 // the maximum of keys in the next page
	limited bool  // r.Limit counts down
	header  Header
	count   int64
}

// List prepares to read a range, with the options of [Client.Get]. The iteration sends the first
// request. A call reads the first keys and fixes the revision. The rest is read at that revision:
// on a stream if the member supports it, otherwise in pages. When the member is lost, the listing
// continues at another one. Orders other than by key, and filters by revision, are answered in one
// message.
func (c *Client) List(ctx context.Context, key string, opts ...GetOption) *Listing {
	l := &Listing{c: c, ctx: ctx, r: *getRequest(key, opts), key: key, page: firstPage}
	c.ns.Place(&l.r.Key, &l.r.End)
	l.limited = l.r.Limit > 0
	return l
}

// Header returns the header of the first answer. Its revision is the revision of the whole listing
// unless [WithRevision] selects another. It is known from the first key on.
func (l *Listing) Header() Header { return l.header }

// Revision returns the revision of the listing, 0 before the first key or the end. A watch from the
// next revision misses nothing and repeats nothing.
func (l *Listing) Revision() int64 { return l.r.Revision }

// Count returns the number of keys in the range, whatever the limit. It is known from the first key
// on, or at the end.
func (l *Listing) Count() int64 { return l.count }

// All iterates over the keys. An error is yielded without a key and ends the iteration. A
// [CompactedError] means that the revision of the listing has been compacted.
func (l *Listing) All() iter.Seq2[KeyValue, error] {
	return func(yield func(KeyValue, error) bool) {
		if l.key == "" && l.r.End == "" {
			yield(KeyValue{}, emptyKey(&rangeMethod))
			return
		}
		more, err := l.readPage(yield)
		streams := true
		for more && err == nil {
			if streams {
				more, streams, err = l.readStream(yield)
			} else {
				more, err = l.readPage(yield)
			}
		}
		if err != nil {
			yield(KeyValue{}, err)
		}
	}
}

// isDivisible reports whether the answer can be read in pieces: it is in the order of keys, and
// without filters.
func (l *Listing) isDivisible() bool {
	r := &l.r
	ordered := SortOrder(r.Order) == SortNone || SortOrder(r.Order) == SortAscend &&
		SortTarget(r.Target) == SortByKey
	return ordered && r.End != "" && !r.CountOnly && r.MinModRevision == 0 &&
		r.MaxModRevision == 0 && r.MinCreateRevision == 0 && r.MaxCreateRevision == 0
}

// yieldPiece yields the keys of a piece and moves after it. more is false if no further keys are
// needed.
func (l *Listing) yieldPiece(resp *GetResponse, yield func(KeyValue, error) bool) (more bool) {
	n := len(resp.KVs)
	if n == 0 {
		return true
	}
	l.r.Key = resp.KVs[n-1].Key + "\x00"
	if l.limited {
		l.r.Limit -= int64(n)
	}
	l.c.ns.strip(resp.KVs)
	for _, kv := range resp.KVs {
		if !yield(kv, nil) {
			return false
		}
	}
	return !l.limited || l.r.Limit > 0
}

// readPage reads a page, or the whole range if it cannot be read in pieces. more reports that the
// range has further keys.
func (l *Listing) readPage(yield func(KeyValue, error) bool) (more bool, err error) {
	r, cut := l.r, l.isDivisible()
	r.Attempt = request.Attempt{}
	if cut && (!l.limited || r.Limit > l.page) {
		r.Limit = l.page
	}
	resp, err := call[GetResponse](l.ctx, l.c, getMethod(&r), l.key, &r)
	if err != nil {
		return false, err
	}
	if err := l.checkCluster(&resp.Header); err != nil {
		return false, err
	}
	if l.header == (Header{}) {
		l.header, l.count = resp.Header, resp.Count
		if l.r.Revision == 0 {
			l.r.Revision = resp.Header.Revision
		}
	}
	l.page = nextPage(resp.KVs)
	return l.yieldPiece(resp, yield) && resp.More && len(resp.KVs) > 0 && cut, nil
}

// checkCluster ends a listing that was continued at a member of another cluster. h may be empty
// after the first answer.
func (l *Listing) checkCluster(h *Header) error {
	if first := l.header.ClusterID; first == 0 || h.ClusterID == 0 || h.ClusterID == first {
		return nil
	}
	return fmt.Errorf("listing of cluster %x at a member of cluster %x: %w", l.header.ClusterID,
		h.ClusterID, ErrClusterChanged)
}

// nextPage returns how many keys like these a page of pageBytes has.
func nextPage(last []KeyValue) int64 {
	size := 1
	for i := range last {
		size += len(last[i].Key) + len(last[i].Value)
	}
	return int64(min(max(1, len(last)*pageBytes/size), maxPage))
}

// readStream reads the rest on a stream, and on another one if it breaks: all are of one revision.
// more reports that the member does not support the call, so the rest must be read in pages.
func (l *Listing) readStream(yield func(KeyValue, error) bool) (more, streams bool, err error) {
	m := &rangeStreamMethod
	if l.r.Serializable {
		plain := m.anyMember()
		m = &plain
	}
	a := l.c.attempts(m, l.key)
	err = a.makeAttempts(l.ctx, func(ctx context.Context) (sent bool, err error) {
		if a.At.NoRangeStream() {
			more = true
			return false, nil
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := openStream(ctx, a.At, rangeStreamDesc, m.name, &l.r)
		for err == nil {
			var chunk rangeChunk
			if err = s.RecvMsg(&chunk); err != nil {
				break
			}
			a.RecordAnswer()
			if err = l.checkCluster(&chunk.Header); err != nil {
				break
			}
			if !l.yieldPiece(&chunk.GetResponse, yield) {
				return true, nil
			}
		}
		switch {
		case err == io.EOF:
			return true, nil
		case status.Code(err) == codes.Unimplemented:
			a.At.SetNoRangeStream()
			more = true
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return false, false, err
	}
	a.At.Release()
	return more, false, nil
}

// openStream opens a stream and sends its only request.
func openStream(ctx context.Context, at *pool.Member, desc *grpc.StreamDesc, name string,
	req any) (grpc.ClientStream, error) {
	s, err := at.Conn().NewStream(ctx, desc, name)
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(req); err != nil && err != io.EOF { // RecvMsg returns why it has ended
		return nil, err
	}
	return s, s.CloseSend()
}
