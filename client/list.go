package client

import (
	"context"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/client/internal/pool"
	"vigil/client/internal/wire"
)

var (
	rangeStreamMethod = read("KV", "RangeStream", "list")
	rangeStreamDesc   = &grpc.StreamDesc{StreamName: "RangeStream", ServerStreams: true}
)

const (
	// firstPage is how many keys are asked for first: their answer fixes the revision of the listing.
	firstPage = 100
	// maxPage is how many keys a page has at most, and pageBytes how large it is meant to be.
	maxPage   = 1000
	pageBytes = 4 << 20
)

// Listing reads a range of any size piece by piece, all of it at one revision. It is read once, by one goroutine.
type Listing struct {
	c   *Client
	ctx context.Context
	r   wire.RangeRequest
	key string // without namespace, for errors

	page    int64 // how many keys the next page has at most
	limited bool  // r.Limit counts down
	header  Header
	count   int64
}

// List prepares to read a range. Nothing is asked until the iteration; options are those of Get. The first keys are
// read by a call, which fixes the revision, and the rest at that revision: on a stream if the member can, otherwise
// in pages. When the member is lost the listing goes on at another one. Orders other than by key, and filters by
// revision, are answered in one message.
func (c *Client) List(ctx context.Context, key string, opts ...GetOption) *Listing {
	l := &Listing{c: c, ctx: ctx, r: *getRequest(key, opts), key: key, page: firstPage}
	c.ns.place(&l.r.Key, &l.r.End)
	l.limited = l.r.Limit > 0
	return l
}

// Header returns the header of the first answer: its revision is that of the whole listing unless
// WithRevision asked for another. It is known from the first key on.
func (l *Listing) Header() Header { return l.header }

// Revision returns the revision that is listed, 0 before the first key or the end. A watch from the next one
// misses nothing and repeats nothing.
func (l *Listing) Revision() int64 { return l.r.Revision }

// Count returns the number of keys in the range, whatever the limit. It is known from the first key on, or at the end.
func (l *Listing) Count() int64 { return l.count }

// All iterates over the keys. An error comes alone and is the last; a CompactedError means that the revision of
// the listing was compacted meanwhile.
func (l *Listing) All() iter.Seq2[KeyValue, error] {
	return func(yield func(KeyValue, error) bool) {
		if l.key == "" && l.r.End == "" {
			yield(KeyValue{}, emptyKey(&rangeMethod))
			return
		}
		more, err := l.next(yield)
		streams := true
		for more && err == nil {
			if streams {
				more, streams, err = l.stream(yield)
			} else {
				more, err = l.next(yield)
			}
		}
		if err != nil {
			yield(KeyValue{}, err)
		}
	}
}

// plain reports whether the answer can be cut: in the order of keys, and without filters.
func (l *Listing) plain() bool {
	r := &l.r
	ordered := SortOrder(r.Order) == SortNone || SortOrder(r.Order) == SortAscend && SortTarget(r.Target) == SortByKey
	return ordered && r.End != "" && !r.CountOnly && r.MinModRevision == 0 && r.MaxModRevision == 0 && r.MinCreateRevision == 0 && r.MaxCreateRevision == 0
}

// hand gives a piece to the caller and moves behind it. more is false if nothing else is wanted.
func (l *Listing) hand(resp *GetResponse, yield func(KeyValue, error) bool) (more bool) {
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

// next reads a page, or everything if the answer cannot be cut. more tells that the range goes on behind it.
func (l *Listing) next(yield func(KeyValue, error) bool) (more bool, err error) {
	r, cut := l.r, l.plain()
	r.Attempt = wire.Attempt{}
	if cut && (!l.limited || r.Limit > l.page) {
		r.Limit = l.page
	}
	resp, err := call[GetResponse](l.ctx, l.c, getMethod(&r), l.key, &r)
	if err != nil {
		return false, err
	}
	if l.header == (Header{}) {
		l.header, l.count = resp.Header, resp.Count
		if l.r.Revision == 0 {
			l.r.Revision = resp.Header.Revision
		}
	}
	l.page = nextPage(resp.KVs)
	return l.hand(resp, yield) && resp.More && len(resp.KVs) > 0 && cut, nil
}

// nextPage returns how many keys a page should have to be of pageBytes, if they are like these.
func nextPage(last []KeyValue) int64 {
	size := 1
	for i := range last {
		size += len(last[i].Key) + len(last[i].Value)
	}
	return int64(min(max(1, len(last)*pageBytes/size), maxPage))
}

// stream reads the rest on a stream, on another one if it breaks: all of them are of one revision. more and streams
// tell that the member has no such call and that pages are to go on.
func (l *Listing) stream(yield func(KeyValue, error) bool) (more, streams bool, err error) {
	m := &rangeStreamMethod
	if l.r.Serializable {
		plain := m.anyone()
		m = &plain
	}
	a := attempts{c: l.c, m: m, key: l.key}
	err = a.run(l.ctx, func(ctx context.Context) (sent bool, err error) {
		if a.at.NoRangeStream() {
			more = true
			return false, nil
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s, err := open(ctx, a.at, rangeStreamDesc, m.name, &l.r)
		for err == nil {
			var chunk rangeChunk
			if err = s.RecvMsg(&chunk); err != nil {
				break
			}
			a.answered()
			if !l.hand(&chunk.GetResponse, yield) {
				return true, nil
			}
		}
		switch {
		case err == io.EOF:
			return true, nil
		case status.Code(err) == codes.Unimplemented:
			a.at.SetNoRangeStream()
			more = true
			return false, nil
		}
		return true, err
	})
	if err != nil {
		return false, false, err
	}
	a.at.Release()
	return more, false, nil
}

// open begins a stream with its only request.
func open(ctx context.Context, at *pool.Member, desc *grpc.StreamDesc, name string, req any) (grpc.ClientStream, error) {
	s, err := at.Conn().NewStream(ctx, desc, name)
	if err != nil {
		return nil, err
	}
	if err := s.SendMsg(req); err != nil && err != io.EOF { // receiving tells why it has ended
		return nil, err
	}
	return s, s.CloseSend()
}
