package lockapi

import (
	"bytes"
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// Errors of elections have no code.
var (
	errNotElected  = status.Error(codes.Unknown, "election: not leader")
	errNoLeader    = status.Error(codes.Unknown, "election: no leader")
	errNoLeaderKey = status.Error(codes.Unknown, `"leader" field must be provided`)
)

// campaign waits until the caller's key is at the head of the queue. The header of the answer has
// the revision at which the key entered the queue.
func (s *API) campaign(ctx context.Context, in, out *dynamicpb.Message) error {
	ctx, leave, err := s.o.Waits.JoinStreams(ctx)
	if err != nil {
		return err
	}
	defer leave()
	lease, err := s.leaseOf(ctx, lockpb.Int(in, "lease"))
	if err != nil {
		return withoutCode(err)
	}
	q := s.queue(lockpb.Bytes(in, "name"))
	c := waiter{key: q.key(lease), lease: lease}
	revision, err := q.enterQueue(ctx, &c, lockpb.Bytes(in, "value"))
	if err != nil {
		return withoutCode(err)
	}
	lockpb.Set(out, "header", s.headerAt(revision))
	leader := lockpb.New(out, "leader")
	lockpb.Set(leader, "name", lockpb.Bytes(in, "name"))
	lockpb.Set(leader, "key", c.key)
	lockpb.Set(leader, "rev", c.rev)
	lockpb.Set(leader, "lease", lease)
	lockpb.Set(out, "leader", leader)
	return nil
}

// enterQueue adds a waiter with a value and waits until it leads.
func (q queue) enterQueue(ctx context.Context, c *waiter,
	value []byte) (revision int64, err error) {
	res, err := q.commitTxn(ctx, &kv.TxnRequest{
		Compare: []kv.Compare{{Key: c.key, Target: kv.CompareCreate, Result: kv.Equal}},
		Success: []kv.Op{{Put: &kv.PutRequest{Key: c.key, Value: value, Lease: c.lease}}},
		Failure: []kv.Op{{Range: &kv.RangeRequest{Key: c.key}}},
	})
	if err != nil {
		return 0, err
	}
	c.rev = res.Revision
	if !res.Succeeded {
		own, err := firstKV(res.Responses[0].Range)
		if err != nil {
			return 0, err
		}
		c.rev = own.CreateRevision
		if !bytes.Equal(own.Value, value) {
			if _, err := q.changeValue(ctx, c, value); err != nil {
				q.abandon(ctx, c)
				return 0, err
			}
		}
	}
	if err := q.awaitTurn(ctx, c.rev-1); err != nil {
		// After other errors the caller can retry and finds its place.
		if ctx.Err() != nil {
			q.abandon(ctx, c)
		}
		return 0, err
	}
	return res.Revision, nil
}

// changeValue replaces the value of a waiter if it is still in the queue.
func (s *API) changeValue(ctx context.Context, c *waiter,
	value []byte) (revision int64, err error) {
	res, err := s.commitTxn(ctx,
		c.ifQueued(kv.Op{Put: &kv.PutRequest{Key: c.key, Value: value, Lease: c.lease}}))
	if err != nil {
		return 0, err
	}
	if !res.Succeeded {
		return 0, errNotElected
	}
	return res.Revision, nil
}

// waiterOf decodes the leader key that campaign has returned.
func (s *API) waiterOf(ctx context.Context, in *dynamicpb.Message) (*waiter, error) {
	leader, ok := lockpb.Message(in, "leader")
	if !ok {
		return nil, errNoLeaderKey
	}
	lease, err := s.leaseOf(ctx, lockpb.Int(leader, "lease"))
	if err != nil {
		return nil, err
	}
	return &waiter{key: lockpb.Bytes(leader, "key"), rev: lockpb.Int(leader, "rev"),
		lease: lease}, nil
}

// proclaim replaces the value of the leader.
func (s *API) proclaim(ctx context.Context, in, out *dynamicpb.Message) error {
	c, err := s.waiterOf(ctx, in)
	if err != nil {
		return withoutCode(err)
	}
	revision, err := s.changeValue(ctx, c, lockpb.Bytes(in, "value"))
	if err != nil {
		return withoutCode(err)
	}
	lockpb.Set(out, "header", s.headerAt(revision))
	return nil
}

// resign ends a leadership. It also succeeds if the caller is no longer the leader.
func (s *API) resign(ctx context.Context, in, out *dynamicpb.Message) error {
	c, err := s.waiterOf(ctx, in)
	if err != nil {
		return withoutCode(err)
	}
	revision, err := s.removeWaiter(ctx, c)
	if err != nil {
		return withoutCode(err)
	}
	lockpb.Set(out, "header", s.headerAt(revision))
	return nil
}

// leader returns the key and value of the leader.
func (s *API) leader(ctx context.Context, in, out *dynamicpb.Message) error {
	res, err := s.readRange(ctx, s.queue(lockpb.Bytes(in, "name")).head())
	if err != nil {
		return withoutCode(err)
	}
	first, err := firstKV(res)
	if err != nil {
		return err
	}
	if first == nil {
		return errNoLeader
	}
	lockpb.Set(out, "header", s.headerAt(res.Revision))
	lockpb.Set(out, "kv", first)
	return nil
}

// observe sends the leader and each of its values, then the next leader. It may omit values and
// leaders that were replaced before they were read, but not the last one. Like etcd, it ends
// without an error when it cannot read.
func (s *API) observe(ctx context.Context, in *dynamicpb.Message,
	send func(*dynamicpb.Message) error) error {
	q := s.queue(lockpb.Bytes(in, "name"))
	var sendErr error
	report := func(revision int64, record *mvccpb.KeyValue) error {
		out := dynamicpb.NewMessage(lockpb.Election.Methods().ByName("Observe").Output())
		lockpb.Set(out, "header", s.headerAt(revision))
		lockpb.Set(out, "kv", record)
		sendErr = send(out)
		return sendErr
	}
	for {
		err := q.observeLeader(ctx, report)
		switch {
		case sendErr != nil:
			return sendErr
		case ctx.Err() != nil:
			return transport.EndStatus(ctx, nil)
		case err != nil && !errors.Is(err, kv.ErrCompacted):
			s.o.Logger.Debug("stopped observing an election after an error", "name",
				string(q.prefix[:len(q.prefix)-1]), "error", err)
			return nil
		}
	}
}

// observeLeader waits for a leader and reports its values until its key is deleted.
func (q queue) observeLeader(ctx context.Context,
	report func(revision int64, leader *mvccpb.KeyValue) error) error {
	res, err := q.readRange(ctx, q.head())
	if err != nil {
		return err
	}
	revision := res.Revision
	leader, err := firstKV(res)
	if err != nil {
		return err
	}
	if leader == nil {
		r := watch.CreateRequest{Key: q.prefix, End: kv.PrefixEnd(q.prefix), StartRev: revision + 1,
			NoDelete: true}
		err := q.o.Watches.Follow(ctx, r, func(res *watch.Response) (bool, error) {
			ev, err := decodeEvent(res.Events[0])
			if err == nil {
				leader, revision = ev.Kv, ev.Kv.ModRevision
			}
			return false, err
		})
		if err != nil {
			return err
		}
	}
	if err := report(revision, leader); err != nil {
		return err
	}
	return q.o.Watches.Follow(ctx, watch.CreateRequest{Key: leader.Key, StartRev: revision + 1},
		func(res *watch.Response) (bool, error) {
			for _, b := range res.Events {
				ev, err := decodeEvent(b)
				if err != nil || ev.Type == mvccpb.Event_DELETE {
					return false, err
				}
				if err := report(res.Revision, ev.Kv); err != nil {
					return false, err
				}
			}
			return true, nil
		})
}

func decodeEvent(b []byte) (*mvccpb.Event, error) {
	ev := &mvccpb.Event{}
	return ev, proto.Unmarshal(b, ev)
}
