package rpc

import (
	"context"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/health/grpc_health_v1"
	rpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/reflect/protoreflect"

	"vigil/internal/edge/rpc/lockpb"
	"vigil/internal/edge/rpc/transport"
	"vigil/internal/kv"
)

// nobodyKnown is a member with auth enabled that knows no user. It rejects every call.
type nobodyKnown struct{ Auth }

func (nobodyKnown) AuthEnabled() bool                              { return true }
func (nobodyKnown) AuthChanged() <-chan struct{}                   { return nil }
func (nobodyKnown) User(context.Context) string                    { return "" }
func (nobodyKnown) CheckUser(context.Context) error                { return kv.ErrUserEmpty }
func (nobodyKnown) RequireUser(context.Context) error              { return kv.ErrUserEmpty }
func (nobodyKnown) RequireAdmin(context.Context) error             { return kv.ErrUserEmpty }
func (nobodyKnown) MayWatch(context.Context, []byte, []byte) error { return kv.ErrUserEmpty }

// noTimes is a member that knows no times.
type noTimes struct{}

func (noTimes) RevisionAt(context.Context, int64, bool) (int64, error) {
	return 0, kv.ErrUserEmpty
}
func (noTimes) Spans(context.Context, []int64) ([]kv.TimeSpan, error) {
	return nil, kv.ErrUserEmpty
}

// methods returns the methods that the server serves, by their full names.
func (f *fixture) methods() map[string]transport.Method {
	out := map[string]transport.Method{}
	for _, s := range f.serveAll(&f.config) {
		for _, m := range s.Methods {
			out["/"+s.Name+"/"+m.Name] = m
		}
	}
	return out
}

// Every method that the server serves has a rule, and every rule has a method.
func TestEveryMethodHasARule(t *testing.T) {
	f := start(t, func(c *Config) {
		c.Auth, c.Leases, c.Times = nobodyKnown{},
			&fakeLeases{}, noTimes{}
	})
	served := map[string]bool{}
	for full := range f.methods() {
		served[full] = true
		if r, ok := rules[full]; !ok || r.Need == 0 && r.Of == nil {
			t.Errorf("%s is served and has no rule", full)
		}
	}
	for full := range rules {
		if !served[full] {
			t.Errorf("%s has a rule and is not served", full)
		}
	}
	if len(served) < 50 {
		t.Errorf("only %d methods are served", len(served))
	}
}

// TestEveryMethodIsServed: all methods of the descriptors are served, with their kind of streams.
func TestEveryMethodIsServed(t *testing.T) {
	f := start(t, func(c *Config) { c.Auth, c.Leases = nobodyKnown{}, &fakeLeases{} })
	n := 0
	methods := f.methods()
	for _, file := range []protoreflect.FileDescriptor{etcdserverpb.File_rpc_proto,
		lockpb.Lock.ParentFile(), lockpb.Election.ParentFile(),
		grpc_health_v1.File_grpc_health_v1_health_proto,
		rpb.File_grpc_reflection_v1_reflection_proto} {
		for i := range file.Services().Len() {
			d := file.Services().Get(i)
			for j := range d.Methods().Len() {
				want := d.Methods().Get(j)
				n++
				m, ok := methods[fmt.Sprintf("/%s/%s", d.FullName(), want.Name())]
				switch {
				case !ok:
					t.Errorf("%s is not served", want.FullName())
				case m.ClientStreams != want.IsStreamingClient() ||
					m.ServerStreams != want.IsStreamingServer():
					t.Errorf("%s is served as %+v", want.FullName(), m)
				}
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d methods in the descriptors", n)
	}
}
