package client

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"

	"vigil/client/internal/wire"
)

var (
	rangeMethod        = read("KV", "Range", "get")
	serializableMethod = read("KV", "Range", "get").anyone()
	putMethod          = write("KV", "Put", "put")
	deleteMethod       = write("KV", "DeleteRange", "delete")
	txnMethod          = write("KV", "Txn", "txn")
	readTxnMethod      = read("KV", "Txn", "txn")
	compactMethod      = write("KV", "Compact", "compact")
)

func getRequest(key string, opts []GetOption) *wire.RangeRequest {
	r := &wire.RangeRequest{Key: key}
	for _, o := range opts {
		o.applyGet(r)
	}
	return r
}

func getMethod(r *wire.RangeRequest) *method {
	if r.Serializable {
		return &serializableMethod
	}
	return &rangeMethod
}

// Get reads a key, or several with a RangeOption. A key that is not there is no error: GetResponse.KV is nil. The
// whole answer comes in one message; for more than a few thousand keys use List.
func (c *Client) Get(ctx context.Context, key string, opts ...GetOption) (*GetResponse, error) {
	r := getRequest(key, opts)
	if key == "" && r.End == "" {
		return nil, emptyKey(&rangeMethod)
	}
	c.ns.place(&r.Key, &r.End)
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

// Put writes a key. After an error that matches ErrUncertain it may have been written.
func (c *Client) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (*PutResponse, error) {
	r := &wire.PutRequest{Key: key, Value: value}
	for _, o := range opts {
		o.applyPut(r)
	}
	if key == "" {
		return nil, emptyKey(&putMethod)
	}
	if c.ns != "" {
		r.Key = string(c.ns) + key
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

// Delete deletes a key, or several with a RangeOption. Deleting what is not there is no error. After an error
// that matches ErrUncertain it may have been deleted.
func (c *Client) Delete(ctx context.Context, key string, opts ...DeleteOption) (*DeleteResponse, error) {
	r := &wire.DeleteRequest{Key: key}
	for _, o := range opts {
		o.applyDelete(r)
	}
	if key == "" && r.End == "" {
		return nil, emptyKey(&deleteMethod)
	}
	c.ns.place(&r.Key, &r.End)
	resp, err := call[DeleteResponse](ctx, c, &deleteMethod, key, r)
	if err != nil {
		return nil, err
	}
	c.ns.strip(resp.PrevKVs)
	return resp, nil
}

// CompactOption is an option of Compact.
type CompactOption interface {
	applyCompact(*etcdserverpb.CompactionRequest)
}

type compactOption func(*etcdserverpb.CompactionRequest)

func (o compactOption) applyCompact(r *etcdserverpb.CompactionRequest) { o(r) }

// WithPhysical makes Compact return only when the space has been freed.
func WithPhysical() CompactOption {
	return compactOption(func(r *etcdserverpb.CompactionRequest) { r.Physical = true })
}

// Compact gives up what was superseded before revision, of all keys of the store whatever the namespace.
func (c *Client) Compact(ctx context.Context, revision int64, opts ...CompactOption) (Header, error) {
	r := &etcdserverpb.CompactionRequest{Revision: revision}
	for _, o := range opts {
		o.applyCompact(r)
	}
	resp, err := ask[etcdserverpb.CompactionResponse](ctx, c, &compactMethod, "", r)
	return header(resp.GetHeader()), err
}

func header(h *etcdserverpb.ResponseHeader) Header {
	return Header{h.GetClusterId(), h.GetMemberId(), h.GetRevision(), h.GetRaftTerm()}
}

// emptyKey is what a server says to an empty key. With a namespace it would be a key that is not the caller's.
func emptyKey(m *method) error {
	return &Error{Op: m.op, Code: codes.InvalidArgument, Text: ErrEmptyKey.Error(), kind: ErrEmptyKey}
}
