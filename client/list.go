package client

import (
	"context"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

var (
	rangeStreamMethod = read("KV", "RangeStream", "list")
	rangeStreamDesc   = &grpc.StreamDesc{StreamName: "RangeStream", ServerStreams: true}
)

// pageSize is how many keys a page has.
const pageSize = 1000

// Listing reads a range of any size piece by piece, all of it at one revision. It is read once, by one goroutine.
type Listing struct {
	c   *Client
	ctx context.Context
	r   rangeRequest
	key string // without namespace, for errors

	limited bool // r.limit counts down
	header  Header
	count   int64
}

// List prepares to read a range. Nothing is asked until the iteration; options are those of Get, and each piece is
// streamed if the member can, otherwise asked for in pages. Orders other than by key, and filters by revision, are
// answered in one message.
func (c *Client) List(ctx context.Context, key string, opts ...GetOption) *Listing {
	l := &Listing{c: c, ctx: ctx, r: *getRequest(key, opts), key: key}
	c.place(&l.r.key, &l.r.end)
	l.limited = l.r.limit > 0
	return l
}

// Header returns the header of the first piece: its revision is that of the whole listing unless
// WithRevision asked for another. It is known from the first key on.
func (l *Listing) Header() Header { return l.header }

// Revision returns the revision that is listed, 0 before the first key or the end. A watch from the next one
// misses nothing and repeats nothing.
func (l *Listing) Revision() int64 { return l.r.revision }

// Count returns the number of keys in the range, whatever the limit, when the end has been reached.
func (l *Listing) Count() int64 { return l.count }

// All iterates over the keys. An error comes alone and is the last; a CompactedError means that the revision of
// the listing was compacted meanwhile.
func (l *Listing) All() iter.Seq2[KeyValue, error] {
	return func(yield func(KeyValue, error) bool) {
		if l.key == "" && l.r.end == "" {
			yield(KeyValue{}, emptyKey(&rangeMethod))
			return
		}
		more, err := true, error(nil)
		if l.plain() {
			if more, err = l.stream(yield); !more {
				return
			}
		}
		if err == nil {
			err = l.pages(yield)
		}
		if err != nil {
			yield(KeyValue{}, err)
		}
	}
}

// plain reports whether the answer can be cut: in the order of keys, and without filters.
func (l *Listing) plain() bool {
	r := &l.r
	ordered := r.order == SortNone || r.order == SortAscend && r.target == SortByKey
	return ordered && r.end != "" && !r.countOnly && r.minMod == 0 && r.maxMod == 0 && r.minCreate == 0 && r.maxCreate == 0
}

// hand gives a piece to the caller and moves behind it. more is false if nothing else is wanted.
func (l *Listing) hand(resp *GetResponse, yield func(KeyValue, error) bool) (more bool) {
	if l.header == (Header{}) && resp.Header != (Header{}) {
		l.header = resp.Header
		if l.r.revision == 0 {
			l.r.revision = resp.Header.Revision
		}
	}
	n := len(resp.KVs)
	if n == 0 {
		return true
	}
	l.r.key = resp.KVs[n-1].Key + "\x00"
	if l.limited {
		l.r.limit -= int64(n)
	}
	l.c.strip(resp.KVs)
	for _, kv := range resp.KVs {
		if !yield(kv, nil) {
			return false
		}
	}
	return true
}

// stream reads on a stream. more tells that pages are to go on where it stopped.
func (l *Listing) stream(yield func(KeyValue, error) bool) (more bool, err error) {
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	m := &rangeStreamMethod
	if l.r.serializable {
		plain := m.anyone()
		m = &plain
	}
	a := attempts{c: l.c, m: m, key: l.key}
	octx, err := a.next(ctx, new(outgoing))
	if err != nil {
		return true, err
	}
	if a.at.noStream.Load() {
		return true, nil
	}
	s, err := a.at.conn.NewStream(octx, rangeStreamDesc, m.name)
	if err == nil {
		if err = s.SendMsg(&l.r); err == nil || err == io.EOF {
			err = s.CloseSend()
		}
	}
	for err == nil {
		var chunk rangeChunk
		if err = s.RecvMsg(&chunk); err == nil {
			l.count = max(l.count, chunk.Count)
			if !l.hand(&chunk.GetResponse, yield) {
				return false, nil
			}
		}
	}
	if err == io.EOF {
		return false, nil
	}
	e := explain(ctx, m.op, l.key, a.at.name, err)
	switch v := judge(e, false); {
	case e.Code == codes.Unimplemented:
		a.at.noStream.Store(true)
		return true, nil
	case v.again || v.renew:
		return true, nil // pages try again as any call does
	}
	return true, e
}

// pages reads in pages.
func (l *Listing) pages(yield func(KeyValue, error) bool) error {
	paged := l.plain()
	for first := true; first || !l.limited || l.r.limit > 0; first = false {
		r := l.r
		r.once = once{}
		if paged && (!l.limited || r.limit > pageSize) {
			r.limit = pageSize
		}
		resp := new(GetResponse)
		if err := l.c.call(l.ctx, r.method(), l.key, &r, resp); err != nil {
			return err
		}
		l.count = max(l.count, resp.Count)
		if more := resp.More; !l.hand(resp, yield) || !more || !paged {
			return nil
		}
	}
	return nil
}
