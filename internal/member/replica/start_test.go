package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/kv"
	"vigil/internal/member/raftnode"
	"vigil/internal/member/replica/proposal"
	"vigil/internal/state/fsm"
	"vigil/internal/vfs/faultfs"
	"vigil/internal/vfs/memfs"
)

// receiver collects outcomes, like the services.
type receiver struct {
	lists chan []kv.Outcome
	// inline counts the outcomes that came on a goroutine that called ProposeStarted.
	inline atomic.Int64
}

func newReceiver() *receiver { return &receiver{lists: make(chan []kv.Outcome, 10_000)} }

func (r *receiver) Receive(list []kv.Outcome) {
	if bytes.Contains(debug.Stack(), []byte(").ProposeStarted(")) {
		r.inline.Add(int64(len(list)))
	}
	r.lists <- slices.Clone(list)
}

// tag returns a completion with a tag.
func (r *receiver) tag(tag any) kv.Completion { return kv.Completion{To: r, Tag: tag} }

// outcomes lets the requests be proposed that were started, and receives n outcomes.
func (r *receiver) outcomes(t *testing.T, m *Replica, n int) map[any]kv.Outcome {
	t.Helper()
	m.ProposeStarted(true)
	out := map[any]kv.Outcome{}
	for len(out) < n {
		var list []kv.Outcome
		select {
		case list = <-r.lists:
		case <-t.Context().Done():
			t.Fatalf("%d of %d outcomes", len(out), n)
		}
		for _, o := range list {
			if _, twice := out[o.Tag]; twice {
				t.Fatalf("two outcomes of request %v", o.Tag)
			}
			out[o.Tag] = o
		}
	}
	return out
}

// now returns the outcomes that are there.
func (r *receiver) now() (out []kv.Outcome) {
	for {
		select {
		case list := <-r.lists:
			out = append(out, list...)
		default:
			return out
		}
	}
}

// TestStarted: each request that was started gets its own result, also the ones of other requests
// in its group.
func TestStarted(t *testing.T) {
	to := newReceiver()
	r := start(t, config(memfs.New()))
	ctx := t.Context()
	const rounds = 50
	for i := range rounds {
		key := fmt.Appendf(nil, "k%d", i)
		ok := r.StartWrite(ctx, kv.Write{Put: &kv.PutRequest{Key: key, Value: key}}, to.tag(4*i)) &&
			r.StartWrite(ctx, kv.Write{Put: &kv.PutRequest{Key: key, Lease: 99}}, to.tag(4*i+1)) &&
			r.StartWrite(ctx, kv.Write{Txn: &kv.TxnRequest{Success: []kv.Op{{Put: &kv.PutRequest{Key: key, PrevKV: true}}}}}, to.tag(4*i+2)) &&
			r.StartWrite(ctx, kv.Write{DeleteRange: &kv.DeleteRangeRequest{Key: key}},
				to.tag(4*i+3))
		if !ok {
			t.Fatal("declined")
		}
	}
	got := to.outcomes(t, r, 4*rounds)
	for i := range rounds {
		put, wrong, txn, del := got[4*i], got[4*i+1], got[4*i+2], got[4*i+3]
		switch {
		case put.Err != nil || put.Put.Revision != int64(3*i+2):
			t.Errorf("put %d: %+v", i, put)
		case !errors.Is(wrong.Err, kv.ErrLeaseNotFound):
			t.Errorf("put %d with an unknown lease: %+v", i, wrong)
		case txn.Err != nil || txn.Txn.Revision != int64(3*i+3) ||
			len(txn.Txn.Responses[0].Put.PrevKV) == 0:
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
	to := newReceiver()
	r := start(t, config(memfs.New()))
	mustGrant(t, r, 7, 100)
	if !r.StartWrite(t.Context(), kv.Write{Grant: &kv.LeaseGrantRequest{ID: 7, TTL: 50}},
		to.tag("given")) ||
		!r.startRequest(t.Context(), fsm.Request{LeaseGrant: &kv.LeaseGrantRequest{ID: 7, TTL: 50}},
			to.tag(chosenID{"chosen"})) ||
		!r.StartWrite(t.Context(), kv.Write{Grant: &kv.LeaseGrantRequest{TTL: 50}},
			to.tag("none")) {
		t.Fatal("declined")
	}
	got := to.outcomes(t, r, 3)
	if o := got["given"]; !errors.Is(o.Err, kv.ErrLeaseExists) {
		t.Errorf("a lease that exists: %+v", o)
	}
	for _, tag := range []string{"chosen", "none"} {
		if o := got[tag]; o.Err != nil || o.Lease.ID == 7 || o.Lease.ID == 0 ||
			!has(r, o.Lease.ID) {
			t.Errorf("%s: %+v", tag, o)
		}
	}
}

// TestDeclined: what might wait or is rejected is not started.
func TestDeclined(t *testing.T) {
	to := newReceiver()
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
	get := func(req kv.RangeRequest) bool { return r.GetNow(ctx, &req, &res, time.Now()) }
	for what, served := range map[string]bool{
		"a large put": r.StartWrite(ctx,
			kv.Write{Put: &kv.PutRequest{Key: []byte("k"), Value: make([]byte, 1000)}}, to.tag(1)),
		"a canceled put": r.StartWrite(gone, kv.Write{Put: put}, to.tag(1)),
		"a transaction of reads": r.StartWrite(ctx,
			kv.Write{Txn: &kv.TxnRequest{Success: []kv.Op{{Range: &kv.RangeRequest{Key: []byte("k")}}}}}, to.tag(1)),
		"a range":         get(kv.RangeRequest{Key: []byte("k"), End: []byte("l")}),
		"an old revision": get(kv.RangeRequest{Key: []byte("k"), Revision: 1}),
		"a count":         get(kv.RangeRequest{Key: []byte("k"), CountOnly: true}),
		"a filter":        get(kv.RangeRequest{Key: []byte("k"), MinModRevision: 1}),
	} {
		if served {
			t.Errorf("%s is served", what)
		}
	}
	for _, serializable := range []bool{true, false} {
		if ok := get(kv.RangeRequest{Key: []byte("k"), Serializable: serializable}); !ok ||
			res.Count != 1 || res.Revision != 3 {
			t.Errorf("get: %+v, %v", res, ok)
		}
	}
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if r.StartWrite(ctx, kv.Write{Put: put}, to.tag(1)) ||
		get(kv.RangeRequest{Key: []byte("k"), Serializable: true}) {
		t.Error("a stopped member serves")
	}
}

// TestStartedAndStopped: requests that were started get an error when the member stops and they
// have no result.
func TestStartedAndStopped(t *testing.T) {
	to := newReceiver()
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
		if !r.StartWrite(t.Context(), kv.Write{Put: &kv.PutRequest{Key: []byte("k")}}, to.tag(i)) {
			t.Fatal("declined")
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	stopped := make(chan error)
	go func() { stopped <- r.Stop(over) }()
	for i, o := range to.outcomes(t, r, requests) {
		if !errors.Is(o.Err, kv.ErrStopped) {
			t.Errorf("request %v: %+v", i, o)
		}
	}
	close(release)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestStartedGet: gets that were started at any member see what was written before at another, and
// are declined when they cannot be answered from memory, or permissions matter.
func TestStartedGet(t *testing.T) {
	to := newReceiver()
	g := startGroup(t, func(_ int, c *Config) { c.RequestTimeout = 2 * time.Second })
	lead := g.leader()
	for i := range 50 {
		value := fmt.Sprint(i)
		mustPut(t, g.list[i%len(g.list)], "k", value)
		for _, r := range g.list {
			for n := range 3 {
				if !r.StartGet(&kv.RangeRequest{Key: []byte("k")}, to.tag(n)) {
					t.Fatalf("member %x declines", r.memberID)
				}
			}
			for tag, o := range to.outcomes(t, r, 3) {
				if o.Declined || o.Err != nil || o.Range.Count != 1 ||
					!strings.HasSuffix(string(o.Range.KVs.At(0)), value) {
					t.Fatalf("get %v at member %x: %+v, want the value %s", tag,
						r.memberID, o, value)
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
		if lead.StartGet(&req, to.tag(1)) {
			t.Errorf("%s is started", what)
		}
	}
	if !lead.StartGet(&kv.RangeRequest{Key: []byte("large")}, to.tag(1)) {
		t.Fatal("declined")
	}
	if o := to.outcomes(t, lead, 1)[1]; !o.Declined {
		t.Errorf("a large value: %+v", o)
	}

	// What is under way when the quorum is lost fails in time, and new gets go their own way.
	for _, r := range g.list {
		if r != lead {
			g.net.setCut(r.memberID, true)
		}
	}
	if !lead.StartGet(&kv.RangeRequest{Key: []byte("k")}, to.tag(1)) {
		t.Fatal("declined")
	}
	await(t, "gets to be declined",
		func() bool { return !lead.StartGet(&kv.RangeRequest{Key: []byte("k")}, to.tag("more")) })
	await(t, "the error", func() bool {
		for _, o := range <-to.lists {
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
	to := newReceiver()
	g := startGroup(t, nil)
	lead := g.leader()
	mustPut(t, lead, "k", "v")
	for _, r := range g.list {
		g.net.setCut(r.memberID, true)
	}
	n := 0
	for ; n < 100 && lead.StartGet(&kv.RangeRequest{Key: []byte("k")}, to.tag(n)); n++ {
	}
	if n == 0 {
		t.Fatal("declined")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lead.Stop(over); err != nil {
		t.Error(err)
	}
	for tag, o := range to.outcomes(t, lead, n) {
		if !errors.Is(o.Err, kv.ErrStopped) {
			t.Errorf("get %v: %+v", tag, o)
		}
	}
	if lead.StartGet(&kv.RangeRequest{Key: []byte("k")}, to.tag(n)) {
		t.Error("a member that was stopped starts a get")
	}
}

// TestProposeAlone: a single request is served on the goroutine of its caller if that has nothing
// else to do and the log is quick, and the caller does not wait for a slow log.
func TestProposeAlone(t *testing.T) {
	to := newReceiver()
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
		if !r.StartWrite(t.Context(),
			kv.Write{Put: &kv.PutRequest{Key: fmt.Appendf(nil, "k%d", tag)}}, to.tag(tag)) {
			t.Fatal("declined")
		}
	}
	await(t, "an outcome on the goroutine of the caller", func() bool {
		put(1)
		r.ProposeStarted(true)
		inline := to.inline.Load()
		o := to.outcomes(t, r, 1)[1]
		if inline == 0 { // another entry was on its way, or the machine is slow
			return false
		}
		if o.Err != nil || o.Put.Revision != r.Status().Revision {
			t.Fatalf("outcome %+v", o)
		}
		return true
	})
	inline := to.inline.Load()
	put(2)
	r.ProposeStarted(false)
	to.outcomes(t, r, 1)
	if to.inline.Load() != inline {
		t.Error("a busy caller has an outcome")
	}

	slow.Store(true)
	for r.raftLog.UsualSync() <= quickSync {
		mustPut(t, r, "k", "v")
	}
	held.Store(true)
	put(3)
	r.ProposeStarted(true) // does not wait for a sync
	if list := to.now(); len(list) != 0 {
		t.Errorf("outcomes %+v without a sync", list)
	}
	close(release)
	to.outcomes(t, r, 1)
}

// TestProposeAloneOnHangingLog: a log that hangs after quick syncs holds up one caller. Requests of
// others do not wait, and that of the caller has its timeout.
func TestProposeAloneOnHangingLog(t *testing.T) {
	to := newReceiver()
	var hangs atomic.Bool
	hanging, release := make(chan struct{}), make(chan struct{})
	c := config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpSync && strings.HasPrefix(name, "data/wal/") && hangs.Load() &&
			bytes.Contains(debug.Stack(), []byte(").ProposeStarted(")) {
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
		if !r.StartWrite(t.Context(),
			kv.Write{Put: &kv.PutRequest{Key: []byte("k")}}, to.tag(tag)) {
			t.Fatal("declined")
		}
	}
	done := make(chan struct{}, 1)
	hangs.Store(true)
	await(t, "a log that hangs for the caller", func() bool {
		put(1)
		go func() { r.ProposeStarted(true); done <- struct{}{} }()
		select {
		case <-done: // another entry was on its way, or the machine is slow
			to.outcomes(t, r, 1)
			return false
		case <-hanging:
			return true
		}
	})
	defer func() {
		close(release)
		<-done
	}()
	if !r.GetNow(t.Context(), &kv.RangeRequest{Key: []byte("k")}, &kv.GetResult{}, time.Now()) {
		t.Error("a get was declined")
	}
	put(2)
	for tag, o := range to.outcomes(t, r, 2) {
		if !errors.Is(o.Err, kv.ErrTimeout) {
			t.Errorf("put %v: %+v", tag, o)
		}
	}
	// With no other request under way it does not wait either.
	put(3)
	r.ProposeStarted(true)
	if list := to.now(); len(list) > 0 {
		t.Errorf("outcomes %+v", list)
	}
	select {
	case <-done:
		t.Error("the first caller is back")
	default:
	}
}

// TestPostponedAuth: a change of users whose commit lacks room for a moment is announced as any
// other one.
func TestPostponedAuth(t *testing.T) {
	var lacks atomic.Bool
	c := config(faultfs.New(memfs.New(), func(op faultfs.Op, name string) faultfs.Fault {
		if op == faultfs.OpWrite && strings.HasPrefix(name, "data/history/") &&
			lacks.CompareAndSwap(true, false) {
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

// TestLongWorkIsLeft: a deletion that takes several batches, on a disk without room, does not hold
// the goroutine that has started it. The member goes on when there is room, and can be stopped
// before.
func TestLongWorkIsLeft(t *testing.T) {
	to := newReceiver()
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
		if !r.StartWrite(t.Context(), kv.Write{DeleteRange: &all}, to.tag(1)) {
			t.Fatal("declined")
		}
		proposed := make(chan struct{})
		go func() { r.ProposeStarted(true); close(proposed) }()
		select {
		case <-proposed:
			if list := to.now(); len(list) != 0 {
				t.Fatalf("outcomes %+v on a full disk", list)
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
		if o := to.outcomes(t, r, 1)[1]; o.Err != nil || o.DeleteRange.Deleted != keys {
			t.Errorf("outcome %+v", o)
		}
		if res, err := r.Range(t.Context(),
			&kv.RangeRequest{Key: all.Key, End: all.End, CountOnly: true}); err != nil ||
			res.Count != 0 {
			t.Errorf("%+v keys are left: %v", res, err)
		}
	}
}

// TestFailedBatchDoesNotGrow: if the commit after an entry of a run lacks room, that is repeated
// before the next entry is added.
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
	for i := range 150 { // all in one segment
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
	at := r.applier.At()
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
		run[0].Entries = append(run[0].Entries,
			&raftpb.Entry{Term: new(at.Term), Index: new(at.Index + 1 + uint64(i)), Data: group})
	}
	lacks.Store(true)
	for prompt := true; ; prompt = false {
		if err := r.applier.Apply(run, prompt); err == nil {
			break
		} else if !prompt || err != raftnode.ErrLeft {
			t.Fatal(err)
		}
	}
	await(t, "both entries are applied", func() bool { return r.applied.Load() == at.Index+2 })
	if n := writes.Load(); n != 2 {
		t.Errorf("%d batches were written, want one of each entry", n)
	}
}

// TestMemoryOfAnswers: the memory of many answers is not kept.
func TestMemoryOfAnswers(t *testing.T) {
	to := newReceiver()
	r := start(t, config(memfs.New()))
	list := make([]*proposal.Call, 3*mostKept)
	for i := range list {
		list[i] = r.queue.StartRead(&kv.RangeRequest{Key: []byte("k")}, to.tag(i), time.Now())
	}
	r.queue.Deliver(list)
	r.answerCalls(false)
	if n := len(to.now()); n != 3*mostKept {
		t.Errorf("%d answers", n)
	}
	if a, ok := r.answering.Get().(*answering); ok &&
		max(cap(a.calls), cap(a.outcomes)) > mostKept {
		t.Errorf("memory for %d answers is kept", cap(a.outcomes))
	}
}
