package transfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"vigil/client"
	"vigil/server/servertest"
)

// TestLateMirror: a transaction with an unknown outcome that is applied after its repetition and
// after later ones does not undo them.
func TestLateMirror(t *testing.T) {
	endpoint := servertest.Start(t)
	var late []func() error
	hold := false
	c, err := client.New(client.Config{Endpoints: []string{endpoint},
		DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
				invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				if !hold || !strings.HasSuffix(method, "KV/Txn") {
					return invoke(ctx, method, req, reply, cc, opts...)
				}
				hold = false
				late = append(late, func() error {
					return invoke(ctx, method, req, reply,
						cc, opts...)
				})
				return rpctypes.ErrGRPCTimeout
			})}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	m := &mirror{to: c}
	event := func(key, value string) client.Event {
		return client.Event{KV: client.KeyValue{Key: key, Value: []byte(value)}}
	}
	write := func(held bool, events ...client.Event) {
		t.Helper()
		hold = held
		if err := m.applyEvents(t.Context(), events); err != nil {
			t.Fatal(err)
		}
	}
	m.maxOps = 128
	write(false, event("a", "1"), event("b", "1"))
	write(true, event("a", "2"))
	write(true, client.Event{Type: client.Delete, KV: client.KeyValue{Key: "b"}})
	write(true, event("c", "1"))
	write(false, event("a", "3"))
	write(false, event("b", "2"))
	write(false, event("c", "2"))
	if len(late) != 3 {
		t.Fatalf("%d transactions were held back", len(late))
	}
	for _, f := range late {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
	for key, want := range map[string]string{"a": "3", "b": "2", "c": "2"} {
		r, err := c.Get(t.Context(), key)
		if err != nil || r.KV() == nil || string(r.KV().Value) != want {
			t.Errorf("%s: %+v, %v, want %s", key, r.KV(), err, want)
		}
	}
}

// TestMirrorLargeValues: transactions are limited in bytes too, for copied keys and for the changes
// of one revision.
func TestMirrorLargeValues(t *testing.T) {
	c, err := client.New(client.Config{Endpoints: []string{servertest.Start(t)}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const keys = 100
	value := make([]byte, 27<<10)
	for n := range keys {
		if _, err := c.Put(t.Context(), fmt.Sprintf("from/%03d", n), value); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Put(t.Context(), "from/large", make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	m := &mirror{from: c, to: c, prefix: "from/", destPrefix: "to/", maxOps: 128}
	ended := make(chan error, 1)
	go func() { ended <- m.copyAndFollow(ctx) }()
	w := c.Watch(ctx, "to/", client.WithPrefix(), client.FromRevision(1))
	seen := 0
	for ev, err := range w.Events() {
		if err != nil {
			t.Fatal(err, <-ended)
		}
		if seen++; ev.KV.Key == "to/large" {
			break
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if seen != keys+1 {
		t.Errorf("%d keys were copied", seen)
	}
	// A revision with more than a transaction may hold.
	var events []client.Event
	for n := range keys {
		events = append(events,
			client.Event{KV: client.KeyValue{Key: fmt.Sprintf("from/%03d", n), Value: value,
				ModRevision: 5000}})
	}
	if err := m.applyEvents(t.Context(), events); err != nil {
		t.Error(err)
	}
}
