package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"vigil/internal/edge/rpc/lockpb"
)

// invokeDynamic calls a method of lockpb with pairs of a field and a value.
func invokeDynamic(ctx context.Context, cc *grpc.ClientConn, sd protoreflect.ServiceDescriptor,
	method protoreflect.Name, fields ...any) (*dynamicpb.Message, error) {
	m := sd.Methods().ByName(method)
	in, out := dynamicpb.NewMessage(m.Input()), dynamicpb.NewMessage(m.Output())
	for i := 0; i < len(fields); i += 2 {
		lockpb.Set(in, protoreflect.Name(fields[i].(string)), fields[i+1])
	}
	return out, cc.Invoke(ctx, fmt.Sprintf("/%s/%s", sd.FullName(), method), in, out)
}

// TestLockExcludes: of many who want a lock, of whom some give up while they wait, one at a time
// has it, and no key is left over.
func TestLockExcludes(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	cc := dial(t, addr)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var mu sync.Mutex // what the lock stands for
	var all sync.WaitGroup
	for i := range int64(5) {
		all.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			for n := range int64(10) {
				// Another lease each time: who gives up has its key deleted a moment later.
				lease := 100*i + n + 1
				if _, err := pb.NewLeaseClient(cc).LeaseGrant(ctx,
					&pb.LeaseGrantRequest{ID: lease, TTL: 600}); err != nil {
					t.Error(err)
					return
				}
				try, cancel := context.WithTimeout(ctx, time.Duration(r.IntN(20))*time.Millisecond)
				if r.IntN(2) == 0 {
					cancel()
					try, cancel = context.WithCancel(ctx)
				}
				got, err := invokeDynamic(try, cc, lockpb.Lock, "Lock", "name", []byte("l"),
					"lease", lease)
				// On a busy machine the member may notice the end of the time before the client
				// does, and say so in its own words.
				end, _ := try.Deadline()
				late := try.Err() != nil || status.Code(err) == codes.DeadlineExceeded ||
					err != nil && time.Until(end) < time.Second &&
						strings.Contains(err.Error(), "timed out")
				cancel()
				if err != nil && !late {
					t.Errorf("lock: %v", err)
					return
				}
				if err != nil {
					// The lock may be had though the answer is lost: the key says so.
					if _, err := invokeDynamic(ctx, cc, lockpb.Lock, "Unlock", "key",
						fmt.Appendf(nil, "l/%x", lease)); err != nil {
						t.Errorf("unlock: %v", err)
					}
					continue
				}
				if !mu.TryLock() {
					t.Error("two have the lock")
					return
				}
				if _, err := pb.NewKVClient(cc).Range(ctx,
					&pb.RangeRequest{Key: []byte("l/"), Serializable: true}); err != nil {
					t.Error(err)
				}
				mu.Unlock()
				if _, err := invokeDynamic(ctx, cc, lockpb.Lock, "Unlock", "key",
					lockpb.Bytes(got, "key")); err != nil {
					t.Errorf("unlock: %v", err)
				}
			}
		})
	}
	all.Wait()
	// A call that was given up may create its key, and deletes it, after the client has unlocked.
	for {
		res, err := pb.NewKVClient(cc).Range(ctx,
			&pb.RangeRequest{Key: []byte("l/"), RangeEnd: []byte("l0")})
		if err != nil {
			t.Fatalf("keys are left over: %v", err)
		}
		if res.Count == 0 {
			break
		}
		time.Sleep(time.Millisecond)
	}
}

// TestLeaderOfLargeValue: a value that comes in pieces is put together.
func TestLeaderOfLargeValue(t *testing.T) {
	_, addr := member(t, Config{UnsafeNoSync: true})
	cc := dial(t, addr)
	value := bytes.Repeat([]byte("v"), 1400<<10)
	if _, err := invokeDynamic(timeout(t), cc, lockpb.Election, "Campaign", "name", []byte("e"),
		"value", value); err != nil {
		t.Fatal(err)
	}
	got, err := invokeDynamic(timeout(t), cc, lockpb.Election, "Leader", "name", []byte("e"))
	if err != nil {
		t.Fatal(err)
	}
	if record, _ := lockpb.Message(got, "kv"); !bytes.Equal(lockpb.Bytes(record, "value"), value) {
		t.Error("another value")
	}
}

// TestStopEndsWaiting: a member that stops does not wait for those who wait for a lock.
func TestStopEndsWaiting(t *testing.T) {
	m, addr := member(t, Config{UnsafeNoSync: true})
	cc := dial(t, addr)
	ctx := timeout(t)
	for id := range int64(3) {
		if _, err := pb.NewLeaseClient(cc).LeaseGrant(ctx,
			&pb.LeaseGrantRequest{ID: 1 + id, TTL: 600}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := invokeDynamic(ctx, cc, lockpb.Lock, "Lock", "name", []byte("l"), "lease",
		int64(1)); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() {
		_, err := invokeDynamic(ctx, cc, lockpb.Lock, "Lock", "name", []byte("l"),
			"lease", int64(2))
		ended <- err
	}()
	go func() {
		_, err := invokeDynamic(ctx, cc, lockpb.Election, "Campaign", "name", []byte("l"),
			"lease", int64(3))
		ended <- err
	}()
	for {
		res, err := pb.NewKVClient(cc).Range(ctx,
			&pb.RangeRequest{Key: []byte("l/"), RangeEnd: []byte("l0"), CountOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		if res.Count == 3 {
			break
		}
	}
	stop(t, m)
	for range 2 {
		err := <-ended
		if c := status.Code(err); c != codes.Unknown && c != codes.Unavailable ||
			errors.Is(err, context.DeadlineExceeded) || c == codes.Unknown &&
			!strings.Contains(err.Error(), "server stopped") {
			t.Errorf("who waited got %v", err)
		}
	}
}
