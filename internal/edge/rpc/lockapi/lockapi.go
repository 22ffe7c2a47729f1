// Package lockapi implements the Lock and Election services of the API.
//
// A lock or an election is a waiting queue of keys below a prefix: NAME/ and the waiter's lease in
// hexadecimal digits. The key with the least create revision is the head: its owner holds the lock
// or is the leader. Every other waiter watches the key right before its own key, so that the
// removal of a key wakes one waiter.
//
//  1. The services read, write and watch like the KV, Lease and Watch services, with the rights of
//     the caller.
//  2. A caller that ends its call while it waits loses its key. A caller that holds a lock keeps it
//     until it unlocks or its lease ends.
//  3. Errors have the texts of etcd's services and the code Unknown: etcd's services are clients of
//     their own member, and errors of the API lose their code there.
package lockapi

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/delivery"
	"vigil/internal/edge/rpc/gate"
	"vigil/internal/edge/rpc/lockpb"
)

// API implements both services.
type API struct{ store }

// Options are what New needs.
type Options struct {
	KV      KV
	Watches Watches
	Waits   Waits
	Member  Member
	// Deliveries counts large answers.
	Deliveries *delivery.Deliveries
	// MaxTxnOps is the largest number of operations on one level of a transaction.
	MaxTxnOps int
	// Cleanup limits the time to remove the key of a client that is gone. Such removals end with
	// Running.
	Cleanup time.Duration
	Running context.Context
	Logger  *slog.Logger
}

// New returns the services.
func New(o Options) *API { return &API{store{o}} }

// Services lists the methods of both services.
func (s *API) Services() []gate.Service {
	unary := gate.DynamicUnary
	return []gate.Service{
		{Name: string(lockpb.Lock.FullName()), Methods: []gate.Endpoint{
			unary(lockpb.Lock, "Lock", s.lock), unary(lockpb.Lock, "Unlock", s.unlock),
		}},
		{Name: string(lockpb.Election.FullName()), Methods: []gate.Endpoint{
			unary(lockpb.Election, "Campaign", s.campaign),
			unary(lockpb.Election, "Proclaim", s.proclaim),
			unary(lockpb.Election, "Leader", s.leader), unary(lockpb.Election, "Resign", s.resign),
			gate.DynamicStream(lockpb.Election, "Observe", s.o.Deliveries, s.observe),
		}},
	}
}

// withoutCode returns an error of the API as its text with the code Unknown.
func withoutCode(err error) error {
	if e := (rpctypes.EtcdError{}); errors.As(rpctypes.Error(err), &e) {
		return status.Error(codes.Unknown, e.Error())
	}
	return err
}

// leaseTTL is the TTL in seconds of a lease for a client that names none.
const leaseTTL = 60

// leaseOf returns the id of the lease with which a client waits: the one that it names, or a new
// one.
func (s *API) leaseOf(ctx context.Context, id int64) (int64, error) {
	if id != 0 {
		return id, nil
	}
	return s.grantLease(ctx, leaseTTL)
}
