package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

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
	prefix = "k/"
)

var keys = []string{"k/a", "k/b", "k/c", "k/d", "k/e", "k/f"}

// dial makes a client that reconnects quickly and notices a dead connection. The caller closes it.
func dial(endpoints ...string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		Logger:               zap.NewNop(),
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second,
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 300 * time.Millisecond},
			MinConnectTimeout: 2 * time.Second,
		})},
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
	rec   *recorder
	acks  *atomic.Int64
	made  int
	// seen is the modification revision that this client saw last, by key.
	seen map[string]int64
	rev  int64
}

// work does operations of some kinds until the context ends.
func (c *client) work(ctx context.Context, pick func(*rand.Rand) kind) {
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
		if o.Outcome != acked {
			pause = 20 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func strong(rng *rand.Rand) kind {
	switch n := rng.IntN(100); {
	case n < 30:
		return put
	case n < 58:
		return get
	case n < 78:
		return cas
	case n < 83:
		return del
	case n < 93:
		return pair
	}
	return scan
}

func weak(rng *rand.Rand) kind {
	if rng.IntN(4) == 0 {
		return pinned
	}
	return local
}

// do makes one operation. It completes or times out even if ctx ends.
func (c *client) do(ctx context.Context, k kind, key string) op {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), opTimeout)
	defer cancel()
	o := op{Client: c.id, Member: c.member, Kind: k, Key: key}
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
	case put:
		var r *clientv3.PutResponse
		if r, err = c.Put(ctx, key, o.Value); err == nil {
			o.Rev = r.Header.Revision
		}
	case pair:
		o.Second = keys[(strings.IndexByte("abcdef", key[2])+1+c.rng.IntN(len(keys)-1))%len(keys)]
		var r *clientv3.TxnResponse
		r, err = c.Txn(ctx).Then(clientv3.OpPut(key, o.Value), clientv3.OpPut(o.Second, o.Value)).Commit()
		if err == nil {
			o.Rev = r.Header.Revision
		}
	case cas:
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
	case del:
		var r *clientv3.DeleteResponse
		if r, err = c.Delete(ctx, key); err == nil {
			o.Rev, o.Deleted = r.Header.Revision, r.Deleted
		}
	default:
		var opts []clientv3.OpOption
		if k != get {
			o.Key = prefix
			opts = append(opts, clientv3.WithPrefix())
		}
		if k == pinned {
			o.Expect = max(1, c.rev-c.rng.Int64N(50))
			opts = append(opts, clientv3.WithRev(o.Expect))
		}
		if k == local || k == pinned {
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
		o.Outcome, o.Err = unknown, err.Error()
		if certain(err) {
			o.Outcome = refused
		}
	} else {
		o.Outcome = acked
		c.learn(&o)
		if o.writes() {
			c.acks.Add(1)
		}
	}
	if !o.writes() {
		o.Value = ""
	}
	c.rec.add(o)
	return o
}

// certain reports whether an error means that the operation was not and will not be applied.
func certain(err error) bool {
	for _, e := range []error{rpctypes.ErrNoSpace, rpctypes.ErrCompacted, rpctypes.ErrFutureRev, rpctypes.ErrTooManyRequests, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// learn remembers revisions for conditions and for reads of the past.
func (c *client) learn(o *op) {
	c.rev = o.Rev
	if o.wrote() {
		for _, k := range o.keys() {
			c.seen[k] = o.Rev
		}
		if o.Kind == del {
			c.seen[o.Key] = 0
		}
	} else if o.Kind == get || o.Kind == cas || o.Kind == del {
		c.seen[o.Key] = 0
	}
	if o.Kind != pinned {
		for _, i := range o.Found {
			c.seen[i.Key] = i.Mod
		}
	}
}

func items(kvs []*pb.KeyValue) []item {
	var out []item
	for _, kv := range kvs {
		out = append(out, *itemOf(kv))
	}
	return out
}

func itemOf(kv *pb.KeyValue) *item {
	if kv == nil {
		return nil
	}
	return &item{string(kv.Key), string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version}
}
