package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/state/fsm"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// outcomes lets the requests be proposed that were started, and receives n results, like the services: in both ways at the same time.
func outcomes(t *testing.T, r *Replica, n int) map[any]kv.Outcome {
	t.Helper()
	lists, stop := make(chan []kv.Outcome, n), make(chan struct{})
	var receivers sync.WaitGroup
	for _, results := range []func([]kv.Outcome, <-chan struct{}) []kv.Outcome{r.Starter.Results, r.Starter.Apply} {
		receivers.Go(func() {
			for list := results(nil, stop); len(list) > 0; list = results(nil, stop) {
				lists <- list
			}
		})
	}
	defer receivers.Wait()
	defer close(stop)
	if r.Starter.Unproposed() {
		lists <- r.Starter.Propose(nil, true)
	}
	out := map[any]kv.Outcome{}
	for len(out) < n {
		var list []kv.Outcome
		select {
		case list = <-lists:
		case <-t.Context().Done():
			t.Fatalf("%d of %d results", len(out), n)
		}
		for _, o := range list {
			if _, twice := out[o.Tag]; twice {
				t.Fatalf("two results of request %v", o.Tag)
			}
			out[o.Tag] = o
		}
	}
	return out
}

// TestStarted: each request that was started gets its own result, also the ones of other requests in its group.
func TestStarted(t *testing.T) {
	r := start(t, config(memfs.New()))
	ctx := t.Context()
	const rounds = 50
	for i := range rounds {
		key := fmt.Appendf(nil, "k%d", i)
		ok := r.Starter.StartWrite(ctx, kv.Write{Put: &kv.PutRequest{Key: key, Value: key}}, 4*i) &&
			r.Starter.StartWrite(ctx, kv.Write{Put: &kv.PutRequest{Key: key, Lease: 99}}, 4*i+1) &&
			r.Starter.StartWrite(ctx, kv.Write{Txn: &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: key, PrevKV: true}}}}}, 4*i+2) &&
			r.Starter.StartWrite(ctx, kv.Write{DeleteRange: &kv.DeleteRangeRequest{Key: key}}, 4*i+3)
		if !ok {
			t.Fatal("declined")
		}
	}
	got := outcomes(t, r, 4*rounds)
	for i := range rounds {
		put, wrong, txn, del := got[4*i], got[4*i+1], got[4*i+2], got[4*i+3]
		switch {
		case put.Err != nil || put.Put.Revision != int64(3*i+2):
			t.Errorf("put %d: %+v", i, put)
		case !errors.Is(wrong.Err, kv.ErrLeaseNotFound):
			t.Errorf("put %d with an unknown lease: %+v", i, wrong)
		case txn.Err != nil || txn.Txn.Revision != int64(3*i+3) || len(txn.Txn.Responses[0].Put.PrevKV) == 0:
			t.Errorf("transaction %d: %+v", i, txn)
		case del.Err != nil || del.DeleteRange.Deleted != 1:
			t.Errorf("deletion %d: %+v", i, del)
		}
	}
	if n := r.queue.Pending(); n != 0 {
		t.Errorf("%d requests are under way", n)
	}
}

// TestStartedGrant: an id that was chosen for a lease, and is in use, is replaced.
func TestStartedGrant(t *testing.T) {
	r := start(t, config(memfs.New()))
	mustGrant(t, r, 7, 100)
	if !r.Starter.StartWrite(t.Context(), kv.Write{Grant: &kv.LeaseGrantRequest{ID: 7, TTL: 50}}, "given") ||
		!r.startRequest(t.Context(), fsm.Request{LeaseGrant: &kv.LeaseGrantRequest{ID: 7, TTL: 50}}, chosenID{"chosen"}) ||
		!r.Starter.StartWrite(t.Context(), kv.Write{Grant: &kv.LeaseGrantRequest{TTL: 50}}, "none") {
		t.Fatal("declined")
	}
	got := outcomes(t, r, 3)
	if o := got["given"]; !errors.Is(o.Err, kv.ErrLeaseExists) {
		t.Errorf("a lease that exists: %+v", o)
	}
	for _, tag := range []string{"chosen", "none"} {
		if o := got[tag]; o.Err != nil || o.Lease.ID == 7 || o.Lease.ID == 0 || !has(r, o.Lease.ID) {
			t.Errorf("%s: %+v", tag, o)
		}
	}
}

// TestDeclined: what might wait or is rejected is not started.
func TestDeclined(t *testing.T) {
	c := config(memfs.New())
	c.MaxRequestBytes = 1000
	r := start(t, c)
	ctx := t.Context()
	mustPut(t, r, "k", "v")
	mustPut(t, r, "large", strings.Repeat("v", 900))
	gone, cancel := context.WithCancel(ctx)
	cancel()
	put := &kv.PutRequest{Key: []byte("k")}
	var res kv.GetResult
	get := func(req kv.RangeRequest) bool { return r.Starter.Get(ctx, &req, &res, time.Now()) }
	for what, served := range map[string]bool{
		"a large put":            r.Starter.StartWrite(ctx, kv.Write{Put: &kv.PutRequest{Key: []byte("k"), Value: make([]byte, 1000)}}, 1),
		"a canceled put":         r.Starter.StartWrite(gone, kv.Write{Put: put}, 1),
		"a transaction of reads": r.Starter.StartWrite(ctx, kv.Write{Txn: &kv.TxnRequest{Success: []kv.Op{{Range: &kv.RangeRequest{Key: []byte("k")}}}}}, 1),
		"a range":                get(kv.RangeRequest{Key: []byte("k"), End: []byte("l")}),
		"an old revision":        get(kv.RangeRequest{Key: []byte("k"), Revision: 1}),
		"a count":                get(kv.RangeRequest{Key: []byte("k"), CountOnly: true}),
		"a filter":               get(kv.RangeRequest{Key: []byte("k"), MinModRevision: 1}),
	} {
		if served {
			t.Errorf("%s is served", what)
		}
	}
	for _, serializable := range []bool{true, false} {
		if ok := get(kv.RangeRequest{Key: []byte("k"), Serializable: serializable}); !ok || res.Count != 1 || res.Revision != 3 {
			t.Errorf("get: %+v, %v", res, ok)
		}
	}
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if r.Starter.StartWrite(ctx, kv.Write{Put: put}, 1) || get(kv.RangeRequest{Key: []byte("k"), Serializable: true}) {
		t.Error("a stopped member serves")
	}
}

// TestStartedAndStopped: requests that were started get an error when the member stops and they have no result.
func TestStartedAndStopped(t *testing.T) {
	var held atomic.Bool
	release := make(chan struct{})
	r := start(t, config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpSync && strings.HasPrefix(name, "data/wal/") && held.Load() {
			<-release
		}
		return faultfs.None
	})))
	held.Store(true)
	const requests = 20
	for i := range requests {
		if !r.Starter.StartWrite(t.Context(), kv.Write{Put: &kv.PutRequest{Key: []byte("k")}}, i) {
			t.Fatal("declined")
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error)
	go func() { stopped <- r.Stop(over) }()
	for i, o := range outcomes(t, r, requests) {
		if !errors.Is(o.Err, kv.ErrStopped) {
			t.Errorf("request %v: %+v", i, o)
		}
	}
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestStartedGet: gets that were started at any member see what was written before at another, and are declined when they cannot be
// answered from memory, or permissions matter.
func TestStartedGet(t *testing.T) {
	g := startGroup(t, func(_ int, c *Config) { c.RequestTimeout = 2 * time.Second })
	lead := g.leader()
	for i := range 50 {
		value := fmt.Sprint(i)
		mustPut(t, g.list[i%len(g.list)], "k", value)
		for _, r := range g.list {
			for n := range 3 {
				if !r.Starter.StartGet(&kv.RangeRequest{Key: []byte("k")}, n) {
					t.Fatalf("member %x declines", r.memberID)
				}
			}
			for tag, o := range outcomes(t, r, 3) {
				if o.Declined || o.Err != nil || o.Range.Count != 1 || !strings.HasSuffix(string(o.Range.KVs.At(0)), value) {
					t.Fatalf("get %v at member %x: %+v, want the value %s", tag, r.memberID, o, value)
				}
			}
		}
	}
	mustPut(t, lead, "large", strings.Repeat("v", 100<<10))
	for what, req := range map[string]kv.RangeRequest{
		"a range":            {Key: []byte("k"), End: []byte("l")},
		"a serializable get": {Key: []byte("k"), Serializable: true},
		"an old revision":    {Key: []byte("k"), Revision: 1},
		"a count":            {Key: []byte("k"), CountOnly: true},
	} {
		if lead.Starter.StartGet(&req, 1) {
			t.Errorf("%s is started", what)
		}
	}
	if !lead.Starter.StartGet(&kv.RangeRequest{Key: []byte("large")}, 1) {
		t.Fatal("declined")
	}
	if o := outcomes(t, lead, 1)[1]; !o.Declined {
		t.Errorf("a large value: %+v", o)
	}

	// What is under way when the quorum is lost fails in time, and new gets go their own way.
	for _, r := range g.list {
		if r != lead {
			g.net.setCut(r.memberID, true)
		}
	}
	if !lead.Starter.StartGet(&kv.RangeRequest{Key: []byte("k")}, 1) {
		t.Fatal("declined")
	}
	await(t, "gets to be declined", func() bool { return !lead.Starter.StartGet(&kv.RangeRequest{Key: []byte("k")}, "more") })
	await(t, "the error", func() bool {
		for _, o := range lead.Starter.Results(nil, t.Context().Done()) {
			if o.Declined || o.Err == nil {
				t.Errorf("without a quorum: %+v", o)
			}
			if o.Tag == 1 {
				return true
			}
		}
		return false
	})
}

// TestStartedGetsEnd: the gets that wait when a member stops have a result.
func TestStartedGetsEnd(t *testing.T) {
	g := startGroup(t, nil)
	lead := g.leader()
	mustPut(t, lead, "k", "v")
	for _, r := range g.list {
		g.net.setCut(r.memberID, true)
	}
	n := 0
	for ; n < 100 && lead.Starter.StartGet(&kv.RangeRequest{Key: []byte("k")}, n); n++ {
	}
	if n == 0 {
		t.Fatal("declined")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lead.Stop(over); err != nil {
		t.Error(err)
	}
	for tag, o := range outcomes(t, lead, n) {
		if !errors.Is(o.Err, kv.ErrStopped) {
			t.Errorf("get %v: %+v", tag, o)
		}
	}
	if lead.Starter.StartGet(&kv.RangeRequest{Key: []byte("k")}, n) {
		t.Error("a member that was stopped starts a get")
	}
}

// TestProposeAlone: a single request is served on the goroutine of its caller if that has nothing else to do and the log is quick, and the
// caller does not wait for a slow log.
func TestProposeAlone(t *testing.T) {
	var slow, held atomic.Bool
	release := make(chan struct{})
	r := start(t, config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpSync && strings.HasPrefix(name, "data/wal/") {
			if slow.Load() {
				time.Sleep(10 * quickSync) // what a disk takes
			}
			if held.Load() {
				<-release
			}
		}
		return faultfs.None
	})))
	put := func(tag int) {
		t.Helper()
		if !r.Starter.StartWrite(t.Context(), kv.Write{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "k%d", tag)}}, tag) || !r.Starter.Unproposed() {
			t.Fatal("declined")
		}
	}
	await(t, "a result on the goroutine of the caller", func() bool {
		put(1)
		list := r.Starter.Propose(nil, true)
		if len(list) == 0 { // another entry was on its way, or the machine is slow
			r.Starter.Results(nil, t.Context().Done())
			return false
		}
		if len(list) != 1 || list[0].Tag != 1 || list[0].Err != nil || list[0].Put.Revision != r.Status().Revision {
			t.Fatalf("results %+v", list)
		}
		return true
	})
	put(2)
	if list := r.Starter.Propose(nil, false); len(list) != 0 {
		t.Errorf("a busy caller has results %+v", list)
	}
	outcomes(t, r, 1)

	slow.Store(true)
	for r.raftLog.UsualSync() <= quickSync {
		mustPut(t, r, "k", "v")
	}
	held.Store(true)
	put(3)
	if list := r.Starter.Propose(nil, true); len(list) != 0 {
		t.Errorf("results %+v without a sync", list)
	}
	close(release)
	outcomes(t, r, 1)
}

// TestProposeAloneOnHangingLog: a log that hangs after quick syncs holds up one caller. Requests of others do not wait, and that of the
// caller has its timeout.
func TestProposeAloneOnHangingLog(t *testing.T) {
	var hangs atomic.Bool
	hanging, release := make(chan struct{}), make(chan struct{})
	c := config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpSync && strings.HasPrefix(name, "data/wal/") && hangs.Load() && bytes.Contains(debug.Stack(), []byte("(*Starter).Propose")) {
			hangs.Store(false)
			close(hanging)
			<-release
		}
		return faultfs.None
	}))
	c.RequestTimeout = 500 * time.Millisecond
	r := start(t, c)
	put := func(tag int) {
		t.Helper()
		if !r.Starter.StartWrite(t.Context(), kv.Write{Put: &kv.PutRequest{Key: []byte("k")}}, tag) || !r.Starter.Unproposed() {
			t.Fatal("declined")
		}
	}
	done := make(chan []kv.Outcome)
	hangs.Store(true)
	await(t, "a log that hangs for the caller", func() bool {
		put(1)
		go func() { done <- r.Starter.Propose(nil, true) }()
		select {
		case list := <-done: // another entry was on its way, or the machine is slow
			if len(list) == 0 {
				outcomes(t, r, 1)
			}
			return false
		case <-hanging:
			return true
		}
	})
	defer func() {
		close(release)
		<-done
	}()
	if !r.Starter.Get(t.Context(), &kv.RangeRequest{Key: []byte("k")}, &kv.GetResult{}, time.Now()) {
		t.Error("a get was declined")
	}
	put(2)
	if list := r.Starter.Propose(nil, true); len(list) > 0 {
		t.Errorf("results %+v", list)
	}
	for tag, o := range outcomes(t, r, 2) {
		if !errors.Is(o.Err, kv.ErrTimeout) {
			t.Errorf("put %v: %+v", tag, o)
		}
	}
	// With no other request under way it does not wait either.
	put(3)
	if list := r.Starter.Propose(nil, true); len(list) > 0 {
		t.Errorf("results %+v", list)
	}
	select {
	case list := <-done:
		t.Errorf("the first caller is back, with %+v", list)
	default:
	}
}

// TestPostponedAuth: a change of users whose commit lacks room for a moment is announced as any other one.
func TestPostponedAuth(t *testing.T) {
	var lacks atomic.Bool
	c := config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpWrite && strings.HasPrefix(name, "data/history/") && lacks.CompareAndSwap(true, false) {
			return faultfs.Errno(syscall.ENOSPC)
		}
		return faultfs.None
	}))
	r := start(t, c)
	for i := range 5 {
		changed := r.Access.AuthChanged()
		lacks.Store(true)
		changeAuth(t, r, t.Context(), kv.AuthRequest{Op: kv.RoleAdd, Role: fmt.Sprintf("r%d", i)})
		if lacks.Load() {
			t.Fatal("nothing was written")
		}
		await(t, "the change is announced", func() bool {
			select {
			case <-changed:
				return true
			default:
				return false
			}
		})
	}
}

// TestLongWorkIsLeft: a deletion that takes several batches, on a disk without room, does not hold the goroutine that has started it. The
// member goes on when there is room, and can be stopped before.
func TestLongWorkIsLeft(t *testing.T) {
	for _, stops := range []bool{false, true} {
		var full atomic.Bool
		c := config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
			if full.Load() && op == faultfs.OpWrite && strings.HasPrefix(name, "data/history/") {
				return faultfs.Errno(syscall.ENOSPC)
			}
			return faultfs.None
		}))
		c.MaxBatchBytes = 4 << 10
		r := start(t, c)
		const keys = 500
		for i := range keys {
			mustPut(t, r, fmt.Sprintf("k%0100d", i), "v")
		}
		full.Store(true)
		all := kv.DeleteRangeRequest{Key: []byte("k"), End: []byte("l")}
		if !r.Starter.StartWrite(t.Context(), kv.Write{DeleteRange: &all}, 1) || !r.Starter.Unproposed() {
			t.Fatal("declined")
		}
		proposed := make(chan []kv.Outcome)
		go func() { proposed <- r.Starter.Propose(nil, true) }()
		select {
		case list := <-proposed:
			if len(list) != 0 {
				t.Fatalf("results %+v on a full disk", list)
			}
		case <-time.After(patience):
			t.Fatal("the caller waits for room")
		}
		if stops {
			if err := r.Stop(t.Context()); err != nil {
				t.Error(err)
			}
			continue
		}
		full.Store(false)
		if o := outcomes(t, r, 1)[1]; o.Err != nil || o.DeleteRange.Deleted != keys {
			t.Errorf("outcome %+v", o)
		}
		if res, err := r.Range(t.Context(), &kv.RangeRequest{Key: all.Key, End: all.End, CountOnly: true}); err != nil || res.Count != 0 {
			t.Errorf("%+v keys are left: %v", res, err)
		}
	}
}

// TestFailedBatchDoesNotGrow: if the commit after an entry of a run lacks room, that is repeated before the next entry is added.
func TestFailedBatchDoesNotGrow(t *testing.T) {
	disk := memfs.New()
	var lacks atomic.Bool
	var writes atomic.Int64 // that succeed since then
	c := config(faultfs.New(disk, func(op faultfs.Op, name string) faultfs.Fault {
		if op != faultfs.OpWrite || !strings.HasPrefix(name, "data/history/") {
			return faultfs.None
		}
		if lacks.CompareAndSwap(true, false) {
			writes.Store(0)
			return faultfs.Errno(syscall.ENOSPC)
		}
		writes.Add(1)
		return faultfs.None
	}))
	r := start(t, c)
	for i := range 200 {
		mustPut(t, r, fmt.Sprintf("k%0100d", i), "v")
	}
	if err := r.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.MaxBatchBytes = 16 << 10 // less than the deletion writes, which is not divided
	r, err := Open(c)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Stop(context.Background())
	at := r.applier.at
	run := []*raftpb.Message{{}}
	for i, req := range []fsm.Request{
		{DeleteRange: &kv.DeleteRangeRequest{Key: []byte("k"), End: []byte("l")}},
		{Put: &kv.PutRequest{Key: []byte("last"), Value: []byte("v")}},
	} {
		group, err := fsm.AppendRequest(fsm.AppendHeader(nil), &req)
		if err != nil {
			t.Fatal(err)
		}
		fsm.PutHeader(group, fsm.GroupHeader{Proposer: 99, Sequence: uint64(1 + i), Count: 1})
		run[0].Entries = append(run[0].Entries, &raftpb.Entry{Term: new(at.Term), Index: new(at.Index + 1 + uint64(i)), Data: group})
	}
	lacks.Store(true)
	r.applier.applySmall(run, nil)
	await(t, "both entries are applied", func() bool { return r.applied.Load() == at.Index+2 })
	if n := writes.Load(); n != 2 {
		t.Errorf("%d batches were written, want one of each entry", n)
	}
}
