//go:build wasip1

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"vigil/sim/check"
	"vigil/sim/guest/sys"
	"vigil/sim/scenario/setup"
)

// dial returns a connection to a member without the library.
func dial(endpoint string) (*grpc.ClientConn, error) {
	return grpc.NewClient("passthrough:///"+endpoint,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			return sys.Network{}.Dial(ctx, "tcp", address)
		}),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second,
			Backoff: backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5,
				MaxDelay: 500 * time.Millisecond}}))
}

// bare makes calls without the library at one member at a time.
type bare struct {
	c      *setup.Client
	id     int
	rng    *rand.Rand
	member int
	conn   *grpc.ClientConn
	kv     etcdserverpb.KVClient
	made   int
	rev    int64            // the newest one that was seen
	seen   map[string]int64 // the modification revisions of keys
}

// choose connects to another member from time to time.
func (b *bare) choose() {
	if b.conn != nil {
		if b.rng.IntN(8) > 0 {
			return
		}
		b.conn.Close()
	}
	b.member = b.rng.IntN(len(b.c.Endpoints))
	conn, err := dial(b.c.Endpoints[b.member])
	if err != nil {
		panic(err) // the address is wrong
	}
	b.conn, b.kv = conn, etcdserverpb.NewKVClient(conn)
}

// call makes a call with a deadline, which is short in some cases; some calls are canceled while
// they are under way.
func (b *bare) call(do func(context.Context) error) error {
	timeout := opTimeout
	switch b.rng.IntN(8) {
	case 0:
		timeout = time.Duration(1+b.rng.IntN(20)) * time.Millisecond
	case 1:
		ctx, cancel := context.WithCancel(context.Background())
		defer time.AfterFunc(time.Duration(b.rng.IntN(6000))*time.Microsecond, cancel).Stop()
		return do(ctx)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return do(ctx)
}

// do makes an operation and reports it.
func (b *bare) do(o check.Op, do func(context.Context, *check.Op) error) check.Op {
	o.Client, o.Member, o.Call = b.id, b.member, now()
	err := b.call(func(ctx context.Context) error { return do(ctx, &o) })
	o.Ret = now()
	if err == nil {
		o.Outcome = check.Acked
		b.rev = max(b.rev, o.Rev)
	} else {
		// Each error of a write leaves its effect open.
		o.Outcome, o.Err = check.Unknown, err.Error()
		if !passingStatus(err) && (o.Writes() || !passingRead(err)) {
			report(setup.Report{Failed: fmt.Sprintf("%s at member %d: %v", o.Kind, o.Member, err)})
		}
	}
	report(setup.Report{Op: &o})
	return o
}

// bareCalls makes the operations of clients without the library, and requests that members must
// reject.
func bareCalls(c *setup.Client, rng *rand.Rand) error {
	b := &bare{c: c, id: c.First + 91, rng: rng, seen: map[string]int64{}}
	for goesOn(c, c.Stop) {
		time.Sleep(time.Duration(rng.Int64N(c.Think)))
		b.choose()
		if rng.IntN(6) == 0 {
			b.reject()
			continue
		}
		b.operate()
	}
	return nil
}

// operate makes a random operation.
func (b *bare) operate() {
	b.made++
	key := keys[b.rng.IntN(len(keys))]
	o := check.Op{Kind: check.Strong(b.rng), Key: key, Value: fmt.Sprintf("%d-%d", b.id, b.made)}
	put := &etcdserverpb.PutRequest{Key: []byte(key), Value: []byte(o.Value)}
	get := &etcdserverpb.RangeRequest{Key: []byte(key)}
	var do func(context.Context, *check.Op) error
	switch o.Kind {
	case check.Put:
		do = func(ctx context.Context, o *check.Op) error {
			r, err := b.kv.Put(ctx, put)
			o.Rev = r.GetHeader().GetRevision()
			return err
		}
	case check.Del:
		o.Value = ""
		do = func(ctx context.Context, o *check.Op) error {
			r, err := b.kv.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{Key: []byte(key)})
			o.Rev, o.Deleted = r.GetHeader().GetRevision(), r.GetDeleted()
			return err
		}
	case check.Cas:
		o.Expect = b.seen[key]
		do = func(ctx context.Context, o *check.Op) error {
			r, err := b.kv.Txn(ctx, &etcdserverpb.TxnRequest{
				Compare: []*etcdserverpb.Compare{{Key: []byte(key),
					Target:      etcdserverpb.Compare_MOD,
					TargetUnion: &etcdserverpb.Compare_ModRevision{ModRevision: o.Expect}}},
				Success: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: put}}},
				Failure: []*etcdserverpb.RequestOp{{Request: &etcdserverpb.RequestOp_RequestRange{RequestRange: get}}}})
			if err != nil {
				return err
			}
			o.Rev, o.Done = r.Header.Revision, r.Succeeded
			if !o.Done {
				for _, kv := range r.Responses[0].GetResponseRange().Kvs {
					o.Found = append(o.Found, *pbItem(kv))
				}
			}
			return nil
		}
	default:
		o.Kind, o.Value = check.Get, ""
		do = func(ctx context.Context, o *check.Op) error {
			r, err := b.kv.Range(ctx, get)
			o.Rev = r.GetHeader().GetRevision()
			for _, kv := range r.GetKvs() {
				o.Found = append(o.Found, *pbItem(kv))
			}
			return err
		}
	}
	o = b.do(o, do)
	switch {
	case o.Outcome != check.Acked:
	case o.Wrote() && o.Kind != check.Del:
		b.seen[key] = o.Rev
	case len(o.Found) > 0:
		b.seen[key] = o.Found[0].Mod
	default:
		b.seen[key] = 0
	}
}

// rejected are requests that members must reject, with the errors of etcd.
var rejected = []struct {
	want error
	call func(context.Context, etcdserverpb.KVClient) error
}{
	{rpctypes.ErrGRPCEmptyKey, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Put(ctx, &etcdserverpb.PutRequest{Value: []byte("x")})
		return err
	}},
	{rpctypes.ErrGRPCEmptyKey, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Range(ctx, &etcdserverpb.RangeRequest{})
		return err
	}},
	{rpctypes.ErrGRPCEmptyKey, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.DeleteRange(ctx, &etcdserverpb.DeleteRangeRequest{RangeEnd: []byte("z")})
		return err
	}},
	{rpctypes.ErrGRPCValueProvided, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Put(ctx,
			&etcdserverpb.PutRequest{Key: []byte("b/x"), Value: []byte("x"), IgnoreValue: true})
		return err
	}},
	{rpctypes.ErrGRPCLeaseProvided, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Put(ctx,
			&etcdserverpb.PutRequest{Key: []byte("b/x"), Lease: 1, IgnoreLease: true})
		return err
	}},
	{rpctypes.ErrGRPCLeaseNotFound, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Put(ctx, &etcdserverpb.PutRequest{Key: []byte("b/x"), Lease: 1 << 62})
		return err
	}},
	{rpctypes.ErrGRPCKeyNotFound, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Put(ctx, &etcdserverpb.PutRequest{Key: []byte("b/never"), IgnoreValue: true})
		return err
	}},
	{rpctypes.ErrGRPCFutureRev, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("b/x"), Revision: 1 << 40})
		return err
	}},
	{rpctypes.ErrGRPCInvalidSortOption, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Range(ctx, &etcdserverpb.RangeRequest{Key: []byte("b/x"), SortTarget: 9})
		return err
	}},
	{rpctypes.ErrGRPCDuplicateKey, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		put := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestPut{RequestPut: &etcdserverpb.PutRequest{Key: []byte("b/x")}}}
		_, err := kv.Txn(ctx,
			&etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{put, put}})
		return err
	}},
	{rpctypes.ErrGRPCTooManyOps, func(ctx context.Context, kv etcdserverpb.KVClient) error {
		_, err := kv.Txn(ctx,
			&etcdserverpb.TxnRequest{Success: make([]*etcdserverpb.RequestOp, 200)})
		return err
	}},
}

// reject makes a request that a member must reject. Members that are stopped or have no leader have
// other errors.
func (b *bare) reject() {
	r := rejected[b.rng.IntN(len(rejected))]
	err := b.call(func(ctx context.Context) error { return r.call(ctx, b.kv) })
	if err == nil || err.Error() != r.want.Error() && !passingStatus(err) {
		report(setup.Report{Failed: fmt.Sprintf("member %d answered %v, want %v",
			b.member, err, r.want)})
	}
}
