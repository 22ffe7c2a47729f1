package rpc

import (
	"bytes"
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// Errors of elections have no code.
var (
	errNotElected    = status.Error(codes.Unknown, "election: not leader")
	errNobodyElected = status.Error(codes.Unknown, "election: no leader")
	errNoLeaderKey   = status.Error(codes.Unknown, `"leader" field must be provided`)
)

func (s *service) electionCalls() dynamicCalls {
	return dynamicCalls{
		unary: map[protoreflect.Name]func(context.Context, *dynamicpb.Message, *dynamicpb.Message) error{
			"Campaign": s.campaign, "Proclaim": s.proclaim, "Leader": s.leader, "Resign": s.resign,
		},
		stream: map[protoreflect.Name]func(context.Context, *dynamicpb.Message, func(any) error) error{
			"Observe": s.observe,
		},
	}
}

// campaign waits until the caller's key is first in line. The head of the answer is that of the moment when
// it joined the line.
func (s *service) campaign(ctx context.Context, in, out *dynamicpb.Message) error {
	ctx, leave, err := s.waiting(ctx)
	if err != nil {
		return err
	}
	defer leave()
	lease, err := s.lease(ctx, lockpb.Int(in, "lease"))
	if err != nil {
		return uncoded(err)
	}
	l := s.line(lockpb.Bytes(in, "name"))
	c := candidate{key: l.key(lease), lease: lease}
	revision, err := l.campaign(ctx, &c, lockpb.Bytes(in, "value"))
	if err != nil {
		return uncoded(err)
	}
	lockpb.Set(out, "header", headerPB(s.header(revision)))
	leader := lockpb.New(out, "leader")
	lockpb.Set(leader, "name", lockpb.Bytes(in, "name"))
	lockpb.Set(leader, "key", c.key)
	lockpb.Set(leader, "rev", c.rev)
	lockpb.Set(leader, "lease", lease)
	lockpb.Set(out, "leader", leader)
	return nil
}

func (l line) campaign(ctx context.Context, c *candidate, value []byte) (revision int64, err error) {
	s := l.svc
	res, err := s.txn(ctx, &kv.TxnRequest{
		Compare: []kv.Compare{{Key: c.key, Target: kv.CompareCreate, Result: kv.Equal}},
		Success: []kv.Op{{Put: &kv.PutRequest{Key: c.key, Value: value, Lease: c.lease}}},
		Failure: []kv.Op{{Range: &kv.RangeRequest{Key: c.key}}},
	})
	if err != nil {
		return 0, err
	}
	c.rev = res.Revision
	if !res.Succeeded {
		own, err := s.firstKV(res.Responses[0].Range)
		if err != nil {
			return 0, err
		}
		c.rev = own.CreateRevision
		if !bytes.Equal(own.Value, value) {
			if _, err := s.change(ctx, c, value); err != nil {
				l.leave(ctx, c)
				return 0, err
			}
		}
	}
	if err := l.awaitTurn(ctx, c.rev-1); err != nil {
		// Whoever is cut off by an error may come back and find its place.
		if ctx.Err() != nil {
			l.leave(ctx, c)
		}
		return 0, err
	}
	return res.Revision, nil
}

// change gives a candidate another value, if it is still in line.
func (s *service) change(ctx context.Context, c *candidate, value []byte) (revision int64, err error) {
	res, err := s.txn(ctx, c.only(kv.Op{Put: &kv.PutRequest{Key: c.key, Value: value, Lease: c.lease}}))
	if err != nil {
		return 0, err
	}
	if !res.Succeeded {
		return 0, errNotElected
	}
	return res.Revision, nil
}

// candidateOf reads what campaign has returned.
func (s *service) candidateOf(ctx context.Context, in *dynamicpb.Message) (*candidate, error) {
	leader, ok := lockpb.Message(in, "leader")
	if !ok {
		return nil, errNoLeaderKey
	}
	lease, err := s.lease(ctx, lockpb.Int(leader, "lease"))
	if err != nil {
		return nil, err
	}
	return &candidate{key: lockpb.Bytes(leader, "key"), rev: lockpb.Int(leader, "rev"), lease: lease}, nil
}

// proclaim gives the leader another value.
func (s *service) proclaim(ctx context.Context, in, out *dynamicpb.Message) error {
	c, err := s.candidateOf(ctx, in)
	if err != nil {
		return uncoded(err)
	}
	revision, err := s.change(ctx, c, lockpb.Bytes(in, "value"))
	if err != nil {
		return uncoded(err)
	}
	lockpb.Set(out, "header", headerPB(s.header(revision)))
	return nil
}

// resign ends a leadership. Whoever does not lead any more is told nothing else.
func (s *service) resign(ctx context.Context, in, out *dynamicpb.Message) error {
	c, err := s.candidateOf(ctx, in)
	if err != nil {
		return uncoded(err)
	}
	revision, err := s.withdraw(ctx, c)
	if err != nil {
		return uncoded(err)
	}
	lockpb.Set(out, "header", headerPB(s.header(revision)))
	return nil
}

// leader tells who is first in line.
func (s *service) leader(ctx context.Context, in, out *dynamicpb.Message) error {
	res, err := s.get(ctx, s.line(lockpb.Bytes(in, "name")).first())
	if err != nil {
		return uncoded(err)
	}
	first, err := s.firstKV(res)
	if err != nil {
		return err
	}
	if first == nil {
		return errNobodyElected
	}
	lockpb.Set(out, "header", headerPB(s.header(res.Revision)))
	lockpb.Set(out, "kv", first)
	return nil
}

// observe sends the leader and each of its values, then the next leader. Values and leaders that are gone
// before they are read may be left out, the last one is not. As etcd's, it ends without an error when it
// cannot read.
func (s *service) observe(ctx context.Context, in *dynamicpb.Message, send func(any) error) error {
	transport.SendUncompressed(ctx)
	l := s.line(lockpb.Bytes(in, "name"))
	var sendErr error
	tell := func(revision int64, record *mvccpb.KeyValue) error {
		out := dynamicpb.NewMessage(lockpb.Election.Methods().ByName("Observe").Output())
		lockpb.Set(out, "header", headerPB(s.header(revision)))
		lockpb.Set(out, "kv", record)
		var m any
		if m, sendErr = s.weighGenerated(ctx, out); sendErr == nil {
			sendErr = send(m)
		}
		return sendErr
	}
	for {
		err := l.observeLeader(ctx, tell)
		switch {
		case sendErr != nil:
			return sendErr
		case ctx.Err() != nil:
			return ended(ctx, nil)
		case err != nil && !errors.Is(err, kv.ErrCompacted):
			s.log.Debug("cannot observe an election any more", "name", string(l.prefix[:len(l.prefix)-1]), "error", err)
			return nil
		}
	}
}

// observeLeader tells of one leader from its first value to the end of its key, after waiting for one if
// there is none.
func (l line) observeLeader(ctx context.Context, tell func(int64, *mvccpb.KeyValue) error) error {
	res, err := l.svc.get(ctx, l.first())
	if err != nil {
		return err
	}
	revision := res.Revision
	leader, err := l.svc.firstKV(res)
	if err != nil {
		return err
	}
	if leader == nil {
		r := watch.CreateRequest{Key: l.prefix, End: prefixEnd(l.prefix), StartRev: revision + 1, NoDelete: true}
		err := l.svc.follow(ctx, r, func(res *watch.Response) (bool, error) {
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
	if err := tell(revision, leader); err != nil {
		return err
	}
	return l.svc.follow(ctx, watch.CreateRequest{Key: leader.Key, StartRev: revision + 1}, func(res *watch.Response) (bool, error) {
		for _, b := range res.Events {
			ev, err := decodeEvent(b)
			if err != nil || ev.Type == mvccpb.Event_DELETE {
				return false, err
			}
			if err := tell(res.Revision, ev.Kv); err != nil {
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
