package client

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"vigil/client/internal/request"
)

var (
	rangeMethod        = read("KV", "Range", "get")
	serializableMethod = read("KV", "Range", "get").anyMember()
	putMethod          = write("KV", "Put", "put")
	deleteMethod       = write("KV", "DeleteRange", "delete")
	txnMethod          = write("KV", "Txn", "txn")
	readTxnMethod      = read("KV", "Txn", "txn")
	compactMethod      = write("KV", "Compact", "compact")
)

func getRequest(key string, opts []GetOption) *request.Range {
	r := &request.Range{Key: key}
	for _, o := range opts {
		o.applyGet(r)
	}
	return r
}

func getMethod(r *request.Range) *method {
	if r.Serializable {
		return &serializableMethod
	}
	return &rangeMethod
}

// Get reads a key, or several with a [RangeOption]. A missing key is not an error: [GetResponse.KV]
// is nil. The whole answer is one message; for more than a few thousand keys use [Client.List].
func (c *Client) Get(ctx context.Context, key string, opts ...GetOption) (*GetResponse, error) {
	r := getRequest(key, opts)
	if key == "" && r.End == "" {
		return nil, emptyKey(&rangeMethod)
	}
	c.ns.Place(&r.Key, &r.End)
	resp, err := call[GetResponse](ctx, c, getMethod(r), key, r)
	if err != nil {
		return nil, err
	}
	c.ns.strip(resp.KVs)
	return resp, nil
}

// Count returns the number of keys without reading them.
func (c *Client) Count(ctx context.Context, key string, opts ...GetOption) (int64, error) {
	r, err := c.Get(ctx, key, append(opts[:len(opts):len(opts)], WithCountOnly())...)
	if err != nil {
		return 0, err
	}
	return r.Count, nil
}

// Put writes a key. After an error that matches [ErrUncertain] it may have been written.
func (c *Client) Put(ctx context.Context, key string, value []byte,
	opts ...PutOption) (*PutResponse, error) {
	r := &request.Put{Key: key, Value: value}
	for _, o := range opts {
		o.applyPut(r)
	}
	if key == "" {
		return nil, emptyKey(&putMethod)
	}
	if c.ns.Prefix != "" {
		r.Key = string(c.ns.Prefix) + key
	}
	if !r.PrevKV {
		resp, err := call[plainPut](ctx, c, &putMethod, key, r)
		if err != nil {
			return nil, err
		}
		return &resp.PutResponse, nil
	}
	resp, err := call[PutResponse](ctx, c, &putMethod, key, r)
	if err != nil {
		return nil, err
	}
	c.ns.stripOne(resp.PrevKV)
	return resp, nil
}

// Delete deletes a key, or several with a [RangeOption]. A missing key is not an error. After an
// error that matches [ErrUncertain] it may have been deleted.
func (c *Client) Delete(ctx context.Context, key string,
	opts ...DeleteOption) (*DeleteResponse, error) {
	r := &request.Delete{Key: key}
	for _, o := range opts {
		o.applyDelete(r)
	}
	if key == "" && r.End == "" {
		return nil, emptyKey(&deleteMethod)
	}
	c.ns.Place(&r.Key, &r.End)
	resp, err := call[DeleteResponse](ctx, c, &deleteMethod, key, r)
	if err != nil {
		return nil, err
	}
	c.ns.strip(resp.PrevKVs)
	return resp, nil
}

// CompactOption is an option of [Client.Compact].
type CompactOption interface{ applyCompact(*compaction) }

type compaction struct{ physical bool }

type compactOption func(*compaction)

func (o compactOption) applyCompact(c *compaction) { o(c) }

// WithPhysical makes [Client.Compact] wait until the space has been freed.
func WithPhysical() CompactOption {
	return compactOption(func(c *compaction) { c.physical = true })
}

// Compact drops the versions of all keys that were superseded before revision. The namespace does
// not matter.
func (c *Client) Compact(ctx context.Context, revision int64,
	opts ...CompactOption) (Header, error) {
	var with compaction
	for _, o := range opts {
		o.applyCompact(&with)
	}
	return headerOf(ask[etcdserverpb.CompactionResponse](ctx, c, &compactMethod, "",
		&etcdserverpb.CompactionRequest{Revision: revision, Physical: with.physical}))
}

// headerOf returns the header of an answer that has nothing else to return.
func headerOf(r interface {
	GetHeader() *etcdserverpb.ResponseHeader
}, err error) (Header, error) {
	return header(r.GetHeader()), err
}

func header(h *etcdserverpb.ResponseHeader) Header {
	return Header{h.GetClusterId(), h.GetMemberId(), h.GetRevision(), h.GetRaftTerm()}
}

// emptyKey is a server's answer to an empty key. With a namespace the key would not be empty at the
// server.
func emptyKey(m *method) error {
	return &Error{Op: m.op, Code: codes.InvalidArgument, Text: ErrEmptyKey.Error(),
		kind: ErrEmptyKey}
}
