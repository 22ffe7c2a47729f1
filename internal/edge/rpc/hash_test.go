package rpc

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
)

// fakeHasher answers with the revision of the request, or fails.
type fakeHasher struct {
	err  error
	wait bool // until the context ends
}

func (f fakeHasher) HashKV(ctx context.Context, revision int64) (kv.HashResult, error) {
	if f.wait {
		<-ctx.Done()
		return kv.HashResult{}, ctx.Err()
	}
	return kv.HashResult{Hash: 0xfffffffe, HashRevision: revision, CompactRevision: -1,
		Revision: 9}, f.err
}

func (f fakeHasher) Hash(ctx context.Context) (kv.HashResult, error) { return f.HashKV(ctx, 8) }

func TestHash(t *testing.T) {
	f := start(t, nil)
	header := &etcdserverpb.ResponseHeader{ClusterId: 0xc1, MemberId: 0xa1,
		Revision: 9, RaftTerm: 7}
	res, err := f.Maintenance.HashKV(t.Context(), &etcdserverpb.HashKVRequest{Revision: 7})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, res, &etcdserverpb.HashKVResponse{Header: header, Hash: 0xfffffffe,
		HashRevision: 7, CompactRevision: -1})
	whole, err := f.Maintenance.Hash(t.Context(), &etcdserverpb.HashRequest{})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, whole, &etcdserverpb.HashResponse{Header: header, Hash: 0xfffffffe})
}

func TestHashErrors(t *testing.T) {
	for _, c := range []struct {
		hasher fakeHasher
		want   error
	}{
		{fakeHasher{err: &kv.CompactedError{CompactRevision: 5}}, rpctypes.ErrGRPCCompacted},
		{fakeHasher{err: kv.ErrFutureRev}, rpctypes.ErrGRPCFutureRev},
		{fakeHasher{err: kv.ErrStopped}, rpctypes.ErrGRPCStopped},
		{fakeHasher{err: kv.ErrCorrupt}, rpctypes.ErrGRPCCorrupt},
	} {
		f := start(t, func(conf *Config) { conf.Hasher = c.hasher })
		_, err := f.Maintenance.HashKV(t.Context(), &etcdserverpb.HashKVRequest{})
		wantStatus(t, err, c.want)
		_, err = f.Maintenance.Hash(t.Context(), &etcdserverpb.HashRequest{})
		wantStatus(t, err, c.want)
	}
}

// TestHashCancel: a hash ends with its client.
func TestHashCancel(t *testing.T) {
	f := start(t, func(c *Config) { c.Hasher = fakeHasher{wait: true} })
	// A call that ends before there is a connection has a different text.
	if _, err := f.KV.Range(t.Context(), &etcdserverpb.RangeRequest{Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		_, err := f.Maintenance.HashKV(ctx, &etcdserverpb.HashKVRequest{})
		errs <- err
	}()
	cancel()
	wantStatus(t, <-errs, status.Error(codes.Canceled, "context canceled"))
}
