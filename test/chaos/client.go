package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"
	"vigil/sim/check"

	pb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	// opTimeout is the timeout of an operation.
	opTimeout = 3 * time.Second
	// think bounds the pause between two operations of a client.
	think = 8 * time.Millisecond
	// prefix is of all keys.
	prefix = check.Prefix
)

var keys = []string{"k/a", "k/b", "k/c", "k/d", "k/e", "k/f"}

// dial makes a client that reconnects quickly and notices a dead connection.
func dial(endpoints []string, opts ...grpc.DialOption) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		Logger:               zap.NewNop(),
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		DialOptions: append(opts, grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5,
				Jitter: 0.2, MaxDelay: 300 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		})),
	})
}

// client does one operation after the other and records them.
type client struct {
	*clientv3.Client
	id     int
	member int
	// slot is where the client's member is, nil if there is no one member.
	slot  *slot
	clock func() time.Duration
	rng   *rand.Rand
	rec   *check.Recorder
	acks  *atomic.Int64
	made  int
	// seen is the modification revision that this client saw last, by key.
	seen map[string]int64
	rev  int64
}

// work does operations of some kinds until the context ends.
func (c *client) work(ctx context.Context, pick func(*rand.Rand) check.Kind) {
	for ctx.Err() == nil {
		if c.slot != nil && !c.slot.voter.Load() {
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		o := c.do(ctx, pick(c.rng), keys[c.rng.IntN(len(keys))])
		pause := time.Duration(c.rng.Int64N(int64(think)))
		if o.Outcome != check.Acked {
			pause = 20 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// do makes one operation. It completes or times out even if ctx ends.
func (c *client) do(ctx context.Context, k check.Kind, key string) check.Op {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	o := check.Op{Client: c.id, Member: c.member, Kind: k, Key: key}
	if c.slot != nil {
		o.Run = int(c.slot.run.Load())
	}
	c.made++
	pad := c.rng.IntN(200)
	if c.rng.IntN(20) == 0 {
		pad *= 200
	}
	o.Value = fmt.Sprintf("%d-%d%s", c.id, c.made, strings.Repeat(".", pad))
	var err error
	o.Call = c.clock()
	switch k {
	case check.Put:
		var r *clientv3.PutResponse
		if r, err = c.Put(ctx, key, o.Value); err == nil {
			o.Rev = r.Header.Revision
		}
	case check.Pair:
		o.Second = keys[(strings.IndexByte("abcdef", key[2])+1+c.rng.IntN(len(keys)-1))%len(keys)]
		var r *clientv3.TxnResponse
		r, err = c.Txn(ctx).Then(clientv3.OpPut(key, o.Value),
			clientv3.OpPut(o.Second, o.Value)).Commit()
		if err == nil {
			o.Rev = r.Header.Revision
		}
	case check.Cas:
		o.Expect = c.seen[key]
		var r *clientv3.TxnResponse
		r, err = c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", o.Expect)).
			Then(clientv3.OpPut(key, o.Value)).Else(clientv3.OpGet(key)).Commit()
		if err == nil {
			o.Rev, o.Done = r.Header.Revision, r.Succeeded
			if !o.Done {
				o.Found = items(r.Responses[0].GetResponseRange().Kvs)
			}
		}
	case check.Del:
		var r *clientv3.DeleteResponse
		if r, err = c.Delete(ctx, key); err == nil {
			o.Rev, o.Deleted = r.Header.Revision, r.Deleted
		}
	default:
		var opts []clientv3.OpOption
		if k != check.Get {
			o.Key = prefix
			opts = append(opts, clientv3.WithPrefix())
		}
		if k == check.Pinned {
			o.Expect = max(1, c.rev-c.rng.Int64N(50))
			opts = append(opts, clientv3.WithRev(o.Expect))
		}
		if k == check.Local || k == check.Pinned {
			opts = append(opts, clientv3.WithSerializable())
		}
		var r *clientv3.GetResponse
		if r, err = c.Get(ctx, o.Key, opts...); err == nil {
			o.Rev, o.Found = r.Header.Revision, items(r.Kvs)
		}
	}
	o.Ret = c.clock()
	if c.slot != nil && int(c.slot.run.Load()) != o.Run {
		o.Run = -1 - c.made // the process changed meanwhile: comparable with no other
	}
	if err != nil {
		o.Outcome, o.Err = check.Unknown, err.Error()
		if certain(err) {
			o.Outcome = check.Refused
		}
	} else {
		o.Outcome = check.Acked
		c.learn(&o)
		if o.Writes() {
			c.acks.Add(1)
		}
	}
	if !o.Writes() {
		o.Value = ""
	}
	c.rec.Add(o)
	return o
}

// certain reports whether an error means that the operation was not and will not be applied.
func certain(err error) bool {
	for _, e := range []error{rpctypes.ErrNoSpace, rpctypes.ErrCompacted, rpctypes.ErrFutureRev,
		rpctypes.ErrTooManyRequests, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// learn remembers revisions for conditions and for reads of the past.
func (c *client) learn(o *check.Op) {
	c.rev = o.Rev
	if o.Wrote() {
		for _, k := range o.Keys() {
			c.seen[k] = o.Rev
		}
		if o.Kind == check.Del {
			c.seen[o.Key] = 0
		}
	} else if o.Kind == check.Get || o.Kind == check.Cas || o.Kind == check.Del {
		c.seen[o.Key] = 0
	}
	if o.Kind != check.Pinned {
		for _, i := range o.Found {
			c.seen[i.Key] = i.Mod
		}
	}
}

func items(kvs []*pb.KeyValue) []check.Item {
	var out []check.Item
	for _, kv := range kvs {
		out = append(out, *itemOf(kv))
	}
	return out
}

func itemOf(kv *pb.KeyValue) *check.Item {
	if kv == nil {
		return nil
	}
	return &check.Item{Key: string(kv.Key), Value: string(kv.Value), Create: kv.CreateRevision,
		Mod: kv.ModRevision, Version: kv.Version}
}
