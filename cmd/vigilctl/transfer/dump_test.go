package transfer

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"vigil/client"
	"vigil/client/lease"
	"vigil/cmd/vigilctl/keytext"
	"vigil/server/servertest"
)

// smallDump returns a dump with two keys.
func smallDump(t testing.TB) []byte {
	t.Helper()
	var b bytes.Buffer
	w := newDumpWriter(&b)
	err := errors.Join(
		w.line(&dumpHeader{Version: dumpVersion, ClusterID: "c1", Revision: 9, Prefixes: []keytext.JSON{"a"}, Keys: 2}),
		w.lease(dumpLease{0x1234, 60, 41}),
		w.key(client.KeyValue{Key: "a<\u2028", Value: []byte("text\n"), CreateRevision: 2, ModRevision: 7, Version: 3, Lease: 0x1234}),
		w.key(client.KeyValue{Key: "a\xff", Value: []byte{0, 0xfe}, CreateRevision: 9, ModRevision: 9, Version: 1}),
		w.end())
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// readAll reads a dump to its end.
func readAll(b []byte) (keys []dumpKey, leases []dumpLease, err error) {
	r, err := newDumpReader(bytes.NewReader(b))
	for err == nil {
		var k *dumpKey
		var l *dumpLease
		k, l, err = r.next()
		switch {
		case k != nil:
			keys = append(keys, *k)
		case l != nil:
			leases = append(leases, *l)
		case err == nil:
			return keys, leases, nil
		}
	}
	return keys, leases, err
}

func TestDumpFile(t *testing.T) {
	whole := smallDump(t)
	keys, leases, err := readAll(whole)
	if err != nil || len(keys) != 2 || len(leases) != 1 || leases[0] != (dumpLease{0x1234, 60, 41}) {
		t.Fatalf("%v %v %v", keys, leases, err)
	}
	if k := keys[0]; k.Key != "a<\u2028" || k.Value != "text\n" || k.Lease != 0x1234 || k.ModRevision != 7 || k.CreateRevision != 2 || k.Version != 3 {
		t.Errorf("%+v", k)
	}
	if k := keys[1]; k.Key != "a\xff" || k.Value != "\x00\xfe" || k.Lease != 0 {
		t.Errorf("%+v", k)
	}
	// Truncated anywhere after the header it is not whole.
	head := bytes.IndexByte(whole, '\n') + 1
	for n := head; n < len(whole); n++ {
		if _, _, err := readAll(whole[:n]); !errors.Is(err, errNoEnd) {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
	// A change anywhere between header and trailer is rejected.
	for n := head; n < bytes.LastIndexByte(whole[:len(whole)-1], '\n'); n++ {
		changed := bytes.Clone(whole)
		changed[n] ^= 1
		if _, _, err := readAll(changed); err == nil {
			t.Fatalf("changed at %d: %q", n, changed)
		}
	}
}

func TestBadDumps(t *testing.T) {
	const head = `{"vigil_dump":1,"cluster_id":"c","revision":1,"prefixes":[""],"keys":1}` + "\n"
	for text, want := range map[string]string{
		"":                             "this is not a dump",
		"{}\n":                         "this is not a dump",
		"hello\n":                      "this is not a dump",
		`{"vigil_dump":2}` + "\n":      "has version 2",
		head:                           "not whole",
		head + "\n":                    "line 2: ",
		head + `{"key":"a"}` + "\n":    "line 2: neither a key",
		head + `{"x":1}` + "\n":        "line 2: json: unknown field",
		head + `{"lease":"x"}` + "\n":  "line 2: ",
		head + `{"lease":"0"}` + "\n":  "line 2: neither",
		head + `{"key":5}` + "\n":      "a key or value is a string",
		head + `{"end":true}` + "\n":   "the dump was changed",
		head + `{"key":"","value":""}`: "not whole",
		head + `{"key":"b","value":""}` + "\n" + `{"key":"a","value":""}` + "\n": "line 3: the key \"a\" is not after",
		head + `{"lease":"1","ttl":-1}` + "\n":                                   "TTL of -1",
		string(smallDump(t)) + "x":                                               "something follows",
	} {
		if _, _, err := readAll([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func FuzzDump(f *testing.F) {
	f.Add(smallDump(f))
	f.Add([]byte(`{"vigil_dump":1}` + "\n" + `{"key":{"base64":"/w=="},"value":"x"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		keys, leases, err := readAll(b)
		if err != nil {
			return
		}
		var again bytes.Buffer
		w := newDumpWriter(&again)
		for _, l := range leases {
			err = errors.Join(err, w.lease(l))
		}
		for _, k := range keys {
			err = errors.Join(err, w.key(client.KeyValue{Key: string(k.Key), Value: []byte(k.Value), Lease: client.LeaseID(k.Lease)}))
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestRemoveNested(t *testing.T) {
	for _, c := range []struct{ in, want []string }{
		{nil, []string{""}},
		{[]string{"b", "a/b", "a/", "a/b", "ab"}, []string{"a/", "ab", "b"}},
		{[]string{"x", ""}, []string{""}},
	} {
		if got := removeNested(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// TestLoadWaits: a load continues after a while without answers from members, and skips the keys that it wrote meanwhile.
// It limits its calls, and reports an outcome that stays unknown.
func TestLoadWaits(t *testing.T) {
	endpoint := servertest.Start(t)
	// The answers of the first grant and of transactions are lost, these for a while from the first on.
	var calls atomic.Int64
	var granted bool
	var first time.Time
	lost, lasts := func() {}, 700*time.Millisecond
	arrives := func(method string) bool {
		switch {
		case strings.HasSuffix(method, "LeaseGrant") && !granted:
			granted = true
			return false
		case strings.HasSuffix(method, "KV/Txn"):
			if first.IsZero() {
				first = time.Now()
			}
			return time.Since(first) > lasts
		}
		return true
	}
	c, err := client.New(client.Config{Endpoints: []string{endpoint}, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(
		func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			calls.Add(1)
			if err := invoke(ctx, method, req, reply, cc, opts...); err != nil {
				return err
			}
			if arrives(method) {
				return nil
			}
			lost()
			return rpctypes.ErrGRPCTimeout
		})}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l := &load{ended: map[client.LeaseID]bool{}, keeper: lease.NewKeeper(c)}
	defer l.keeper.Close()
	if err := l.grantLease(t.Context(), c, &dumpLease{ID: 77, TTL: 60}); err != nil {
		t.Fatal(err)
	}
	keys := []dumpKey{{Key: "a", Value: "1", Metadata: keytext.Metadata{Lease: 77}}, {Key: "b", Value: "2"}}
	if err := l.putBatch(t.Context(), c, keys); err != nil {
		t.Fatal(err)
	}
	if n := l.done; n.same != 2 || n.put != 0 {
		t.Errorf("%+v", n)
	}
	if n := calls.Load(); n > 20 {
		t.Errorf("%d calls", n)
	}
	lasts = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lost = sync.OnceFunc(func() { time.AfterFunc(200*time.Millisecond, cancel) })
	if err := l.putBatch(ctx, c, []dumpKey{{Key: "c"}}); !errors.Is(err, client.ErrUncertain) || !strings.Contains(err.Error(), "unknown") {
		t.Error(err)
	}
}
