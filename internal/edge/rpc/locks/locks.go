// Package locks implements the Lock and Election services of the API.
//
// A lock or an election is a waiting queue of keys below a prefix: NAME/ and the waiter's lease in hexadecimal digits. The
// key with the least create revision is at the head: its owner holds the lock or is the leader. Every other waiter
// watches the key right before its own, so that the removal of a key wakes one waiter.
//
//  1. The services act by the KV, Lease and Watch services (Store), with the rights of the caller.
//  2. A caller that ends its call while it waits loses its key. A caller that holds a lock keeps it until it unlocks or
//     its lease ends.
//  3. Errors have the texts of etcd's services and the code Unknown: etcd's are clients of their own member, and an error
//     of the API loses its code there.
package locks

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/kv"
	"vigil/internal/store/watch"
)

// Store is the part of the other services that locks and elections use. Errors are statuses unless noted.
type Store interface {
	Range(context.Context, *kv.RangeRequest) (*kv.RangeResult, error)
	Txn(context.Context, *kv.TxnRequest) (*kv.TxnResult, error)
	Delete(ctx context.Context, key []byte) (*kv.DeleteRangeResult, error)
	// Grant grants a lease with a TTL in seconds.
	Grant(ctx context.Context, ttl int64) (id int64, err error)
	// Follow watches until next returns false or an error, which it returns. The error is kv.ErrCompacted if the start
	// revision is compacted.
	Follow(ctx context.Context, r watch.CreateRequest, next func(*watch.Response) (more bool, err error)) error
	// Header returns the header of a response that was made at a revision.
	Header(revision int64) *etcdserverpb.ResponseHeader
	// Wait returns the context of a call that may take long, which ends with the server. leave ends the wait.
	Wait(ctx context.Context) (_ context.Context, leave func(), err error)
}

// Services implements both services.
type Services struct {
	store Store
	// cleanup bounds the removal of a key whose client is gone.
	cleanup time.Duration
	// running ends when the server does not wait for such removals any more.
	running context.Context
	log     *slog.Logger
}

// New returns the services. They remove the key of a client that is gone for up to cleanup, and not after the end of running.
func New(running context.Context, store Store, cleanup time.Duration, log *slog.Logger) *Services {
	return &Services{store, cleanup, running, log}
}

// Calls are the methods of a service by name.
type Calls struct {
	Unary  map[protoreflect.Name]func(ctx context.Context, in, out *dynamicpb.Message) error
	Stream map[protoreflect.Name]func(ctx context.Context, in *dynamicpb.Message, send func(*dynamicpb.Message) error) error
}

// Lock returns the methods of the Lock service.
func (s *Services) Lock() Calls {
	return Calls{Unary: map[protoreflect.Name]func(context.Context, *dynamicpb.Message, *dynamicpb.Message) error{
		"Lock": s.lock, "Unlock": s.unlock,
	}}
}

// Election returns the methods of the Election service.
func (s *Services) Election() Calls {
	return Calls{
		Unary: map[protoreflect.Name]func(context.Context, *dynamicpb.Message, *dynamicpb.Message) error{
			"Campaign": s.campaign, "Proclaim": s.proclaim, "Leader": s.leader, "Resign": s.resign,
		},
		Stream: map[protoreflect.Name]func(context.Context, *dynamicpb.Message, func(*dynamicpb.Message) error) error{
			"Observe": s.observe,
		},
	}
}

// withoutCode returns an error of the API as its text with the code Unknown.
func withoutCode(err error) error {
	if e := (rpctypes.EtcdError{}); errors.As(rpctypes.Error(err), &e) {
		return status.Error(codes.Unknown, e.Error())
	}
	return err
}

// leaseTTL is the TTL in seconds of a lease that is granted to a client without one.
const leaseTTL = 60

// leaseOf returns the id of the lease that a client waits with: its own, or a new one if it has none.
func (s *Services) leaseOf(ctx context.Context, id int64) (int64, error) {
	if id != 0 {
		return id, nil
	}
	return s.store.Grant(ctx, leaseTTL)
}
