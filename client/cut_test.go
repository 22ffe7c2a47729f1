package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"vigil/client"
)

// cutConn is a connection that ends after a number of bytes, which the peer may or may not have
// received. A negative number means that it does not end.
type cutConn struct {
	net.Conn
	in, out    int64 // how many bytes may pass
	read, sent *atomic.Int64
}

var errCut = errors.New("cut")

func (c *cutConn) Read(b []byte) (int, error) {
	if c.in >= 0 {
		left := c.in - c.read.Load()
		if left <= 0 {
			_ = c.Conn.Close()
			return 0, errCut
		}
		b = b[:min(int64(len(b)), left)]
	}
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

func (c *cutConn) Write(b []byte) (int, error) {
	if left := c.out - c.sent.Load(); c.out >= 0 && left < int64(len(b)) {
		n, _ := c.Conn.Write(b[:max(0, left)])
		c.sent.Add(int64(n))
		_ = c.Conn.Close()
		return n, errCut
	}
	n, err := c.Conn.Write(b)
	c.sent.Add(int64(n))
	return n, err
}

// trial is a call on a client whose first connection is cut.
type trial struct {
	t        *testing.T
	ctx      context.Context
	c        *client.Client // whose connection is cut
	whole    *client.Client // sees the same keys
	in, out  int64
	read     atomic.Int64
	sent     atomic.Int64
	dials    atomic.Int64
	changing sync.Once
	change   func() // what happens before the second connection
	ns       string // of both
	where    string
}

func (tr *trial) dial(ctx context.Context, _ string) (net.Conn, error) {
	n := tr.dials.Add(1)
	if n > 1 && tr.change != nil {
		tr.changing.Do(tr.change)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", endpoint)
	if err != nil || n > 1 {
		return conn, err
	}
	return &cutConn{Conn: conn, in: tr.in, out: tr.out, read: &tr.read, sent: &tr.sent}, nil
}

func (tr *trial) errorf(format string, args ...any) {
	tr.t.Helper()
	tr.t.Errorf("%s: %s", tr.where, fmt.Sprintf(format, args...))
}

// must reports an error of a call that is not under test.
func (tr *trial) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.errorf("%v", err)
	}
}

// content returns the keys of an answer, as key@revision.
func content(kvs []client.KeyValue) string {
	var b strings.Builder
	for _, kv := range kvs {
		fmt.Fprintf(&b, "%s@%d=%s ", kv.Key, kv.ModRevision, kv.Value)
	}
	return b.String()
}

// fill writes keys, changes them before the second connection is made, and returns a function that
// checks that a read matches one of both states.
func (tr *trial) fill() (check func(got string, rev int64)) {
	w := tr.whole
	var ops []client.Op
	for i := range 7 {
		ops = append(ops, client.OpPut(fmt.Sprintf("k%d", i), []byte("old")))
	}
	_, err := w.Txn(tr.ctx).Then(ops...).Commit()
	tr.must(err)
	state := func() (string, int64) {
		r, err := w.Get(tr.ctx, "k", client.WithPrefix())
		if err != nil {
			tr.must(err)
			return "", 0
		}
		return content(r.KVs), r.Header.Revision
	}
	before, _ := state()
	var after string
	var changed int64
	tr.change = func() {
		r, err := w.Txn(tr.ctx).Then(client.OpDelete("k1"), client.OpPut("k0", []byte("new")),
			client.OpPut("k5", []byte("new")), client.OpPut("k8", []byte("new"))).Commit()
		tr.must(err)
		if err == nil {
			changed = r.Header.Revision
		}
		after, _ = state()
	}
	return func(got string, rev int64) {
		tr.t.Helper()
		tr.changing.Do(func() {})
		switch {
		case got == before && (changed == 0 || rev < changed):
		case changed != 0 && got == after && rev >= changed:
		default:
			tr.errorf("at revision %d: %s\nbefore: %s\nafter %d: %s", rev, got, before,
				changed, after)
		}
	}
}

// wrote checks a write of a new key: it was made once if it succeeded, at most once if the outcome
// is unknown, otherwise not.
func (tr *trial) wrote(key string, err error) {
	tr.t.Helper()
	unknown := errors.Is(err, client.ErrUncertain)
	if err != nil && !unknown {
		tr.errorf("it was not tried again: %v", err)
	}
	r, rerr := tr.whole.Get(tr.ctx, key)
	tr.must(rerr)
	if rerr != nil {
		return
	}
	var version int64
	if kv := r.KV(); kv != nil {
		version = kv.Version
	}
	if version > 1 || err == nil && version != 1 || err != nil && !unknown && version != 0 {
		tr.errorf("version %d after %v", version, err)
	}
}

var leaseIDs atomic.Int64

// greeting is the approximate number of bytes that a member sends before it answers calls.
const greeting = 40

// trials are the calls, with the distance of the cuts in bytes of the answer.
var trials = []struct {
	name  string
	every int64
	run   func(*trial)
}{
	{"get", 1, func(tr *trial) {
		check := tr.fill()
		r, err := tr.c.Get(tr.ctx, "k", client.WithPrefix())
		if tr.must(err); err == nil {
			check(content(r.KVs), r.Header.Revision)
		}
	}},
	{"list", 1, func(tr *trial) {
		check := tr.fill()
		l := tr.c.List(tr.ctx, "k", client.WithPrefix())
		client.SetFirstPage(l, 2)
		var kvs []client.KeyValue
		for kv, err := range l.All() {
			if err != nil {
				tr.must(err)
				return
			}
			kvs = append(kvs, kv.Clone())
		}
		check(content(kvs), l.Revision())
		if n := l.Count(); n != int64(len(kvs)) {
			tr.errorf("count %d of %d keys", n, len(kvs))
		}
	}},
	{"read txn", 1, func(tr *trial) {
		check := tr.fill()
		r, err := tr.c.Txn(tr.ctx).If(client.Exists("k1")).Then(client.OpGet("k",
			client.WithPrefix())).Else(client.OpGet("k", client.WithPrefix()),
			client.OpGet("k8")).Commit()
		if tr.must(err); err != nil {
			return
		}
		check(content(r.Responses[0].Get.KVs), r.Header.Revision)
		if r.Succeeded != (len(r.Responses) == 1) ||
			r.Succeeded != strings.Contains(content(r.Responses[0].Get.KVs), "k1@") {
			tr.errorf("succeeded %v with %d responses", r.Succeeded, len(r.Responses))
		}
	}},
	{"watch", 2, func(tr *trial) {
		w := tr.whole
		var want []string
		first, err := w.Put(tr.ctx, "w0", nil)
		if tr.must(err); err != nil {
			return
		}
		want = append(want, fmt.Sprintf("w0@%d", first.Header.Revision))
		r, err := w.Txn(tr.ctx).Then(client.OpPut("w1", nil), client.OpPut("w2", nil),
			client.OpDelete("w0")).Commit()
		if tr.must(err); err != nil {
			return
		}
		for _, k := range []string{"w1", "w2", "w0"} {
			want = append(want, fmt.Sprintf("%s@%d", k, r.Header.Revision))
		}
		last, err := w.Put(tr.ctx, "w3", nil)
		if tr.must(err); err != nil {
			return
		}
		want = append(want, fmt.Sprintf("w3@%d", last.Header.Revision))
		watcher := tr.c.Watch(tr.ctx, "w", client.WithPrefix(),
			client.FromRevision(first.Header.Revision))
		defer watcher.Close()
		if got, err := read(watcher, len(want)); err != nil || !slices.Equal(got, want) {
			tr.errorf("%v, %v, want %v", got, err, want)
		}
	}},
	{"put", 2, func(tr *trial) {
		_, err := tr.c.Put(tr.ctx, "p", []byte("value"), client.WithPrevKV())
		tr.wrote("p", err)
	}},
	{"write txn", 4, func(tr *trial) {
		r, err := tr.c.Txn(tr.ctx).If(client.Missing("t")).Then(client.OpPut("t", []byte("value")),
			client.OpGet("t")).Commit()
		tr.wrote("t", err)
		if err == nil && (!r.Succeeded || len(r.Responses) != 2 ||
			content(r.Responses[1].Get.KVs) != fmt.Sprintf("t@%d=value ", r.Header.Revision)) {
			tr.errorf("%+v", r)
		}
	}},
	{"delete", 5, func(tr *trial) {
		_, err := tr.whole.Put(tr.ctx, "d", nil)
		tr.must(err)
		r, err := tr.c.Delete(tr.ctx, "d", client.WithPrevKV())
		if err == nil && (r.Deleted != 1 || len(r.PrevKVs) != 1) ||
			err != nil && !errors.Is(err, client.ErrUncertain) {
			tr.errorf("%+v, %v", r, err)
		}
	}},
	{"grant", 7, func(tr *trial) {
		id := client.LeaseID(1<<40 + leaseIDs.Add(1))
		r, err := tr.c.Grant(tr.ctx, time.Minute, client.WithLeaseID(id))
		if err == nil && (r.ID != id || r.TTL != time.Minute) ||
			err != nil && !errors.Is(err, client.ErrUncertain) {
			tr.errorf("%+v, %v", r, err)
		}
	}},
	{"keep alive", 4, func(tr *trial) {
		g, err := tr.whole.Grant(tr.ctx, time.Minute)
		if tr.must(err); err != nil {
			return
		}
		if ttl, err := tr.c.KeepAliveOnce(tr.ctx, g.ID); err != nil || ttl != time.Minute {
			tr.errorf("%v, %v", ttl, err)
		}
	}},
	{"status", 7, func(tr *trial) {
		if r, err := tr.c.Maintenance().Status(tr.ctx); err != nil || r.Version == "" ||
			r.Leader == 0 || r.RaftIndex == 0 {
			tr.errorf("%v, %v", r, err)
		}
	}},
	{"members", 7, func(tr *trial) {
		if r, err := tr.c.Cluster().MemberList(tr.ctx); err != nil || len(r.Members) != 1 {
			tr.errorf("%v, %v", r, err)
		}
	}},
	{"snapshot", 30011, func(tr *trial) {
		s, err := tr.c.Maintenance().Snapshot(tr.ctx)
		for errors.Is(err, client.ErrTooManyRequests) && tr.ctx.Err() == nil {
			// The member makes a few at a time, and more calls run here.
			time.Sleep(10 * time.Millisecond)
			s, err = tr.c.Maintenance().Snapshot(tr.ctx)
		}
		if tr.must(err); err != nil {
			return
		}
		defer s.Close()
		n, err := io.Copy(io.Discard, s)
		if err == nil && n != s.Size || err != nil && tr.in < 0 && tr.out < 0 {
			tr.errorf("%d bytes of %d, %v", n, s.Size, err)
		}
	}},
	{"range of Conn", 5, func(tr *trial) {
		check := tr.fill()
		r, err := pb.NewKVClient(tr.c.Conn()).Range(tr.ctx,
			&pb.RangeRequest{Key: []byte(tr.ns + "k"), RangeEnd: []byte(tr.ns + "l")})
		if tr.must(err); err != nil {
			return
		}
		var kvs []client.KeyValue
		for _, kv := range r.Kvs {
			kvs = append(kvs, client.KeyValue{Key: strings.TrimPrefix(string(kv.Key), tr.ns),
				ModRevision: kv.ModRevision, Value: kv.Value})
		}
		check(content(kvs), r.Header.Revision)
	}},
	{"put of Conn", 5, func(tr *trial) {
		_, err := pb.NewKVClient(tr.c.Conn()).Put(tr.ctx, &pb.PutRequest{Key: []byte(tr.ns + "p")})
		if err != nil {
			err = client.ErrUncertain // gRPC does not say more
		}
		tr.wrote("p", err)
	}},
	{"keep-alives of Conn", 4, func(tr *trial) {
		g, err := tr.whole.Grant(tr.ctx, time.Minute)
		if tr.must(err); err != nil {
			return
		}
		ctx, cancel := context.WithCancel(tr.ctx)
		defer cancel()
		s, err := pb.NewLeaseClient(tr.c.Conn()).LeaseKeepAlive(ctx)
		if err == nil {
			err = s.Send(&pb.LeaseKeepAliveRequest{ID: int64(g.ID)})
		}
		var r *pb.LeaseKeepAliveResponse
		if err == nil {
			r, err = s.Recv()
		}
		if err != nil || r.TTL != 60 || r.ID != int64(g.ID) {
			tr.errorf("%v, %v", r, err)
		}
	}},
}

// TestCut: a call whose connection is cut after any number of bytes, in either direction, returns a
// right and complete answer or, for a write, the error of an unknown outcome. An answer is of one
// revision, although the store changes. No call hangs, and no goroutine remains. With
// VIGIL_CUTS=all every call is cut at each byte, and a snapshot at each hundredth.
func TestCut(t *testing.T) {
	whole := open(t, client.Config{Endpoints: []string{endpoint}})
	try := func(t *testing.T, call func(*trial), name string, in, out int64) (read, sent int64) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		tr := &trial{t: t, ctx: ctx, in: in, out: out,
			where: fmt.Sprintf("%s, cut after %d bytes in, %d out", name, in, out)}
		c, err := client.New(client.Config{Endpoints: []string{"127.0.0.1:1"},
			DialTimeout: time.Minute,
			DialOptions: []grpc.DialOption{grpc.WithContextDialer(tr.dial)}})
		if err != nil {
			t.Error(err)
			return 0, 0
		}
		defer c.Close()
		tr.ns = fmt.Sprintf("cut/%d/", run.Add(1))
		tr.c, tr.whole = c.In(tr.ns), whole.In(tr.ns)
		call(tr)
		return tr.read.Load(), tr.sent.Load()
	}
	all := os.Getenv("VIGIL_CUTS") == "all"
	for i, x := range trials {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			read, sent := try(t, x.run, x.name, -1, -1)
			every := x.every
			if all {
				// the half megabyte of a snapshot is cut at each hundredth byte
				every = max(1, every/300)
			}
			var wg sync.WaitGroup
			slots := make(chan struct{}, 12)
			cut := func(in, out int64) {
				slots <- struct{}{}
				wg.Go(func() {
					defer func() { <-slots }()
					try(t, x.run, x.name, in, out)
				})
			}
			first := rand.Int64N(every)
			if !all && i > 0 {
				first += greeting // the first call is cut before that
			}
			for n := first; n < read && !t.Failed(); n += every {
				cut(n, -1)
			}
			if !all {
				// what a member gets is its business; here it is about what a client sends again
				every *= 11
			}
			for n := rand.Int64N(every); n < sent && !t.Failed(); n += every {
				cut(-1, n)
			}
			wg.Wait()
			t.Logf("%d bytes in, %d out", read, sent)
		})
	}
}
