package diff

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"vigil/test/proc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Side is one of the two servers.
type Side struct {
	Server *proc.Server
	Conn   *grpc.ClientConn
	ids    ids
	tokens map[string]string // by user, see Login
}

// Difference is one field in which the subject's answer to a call is not the stock server's.
type Difference struct {
	Call string
	Field
	// Why is not empty if the difference is accepted.
	Why string
	at  int // how many calls had been made
}

func (d Difference) String() string {
	return fmt.Sprintf("%s\n\t%s: etcd %s\n\t%s: got  %s", d.Call, d.Path, d.Want, d.Path, d.Got)
}

// Pair is the subject and a stock etcd in the same state. Its methods are for one goroutine.
type Pair struct {
	Etcd, Subject *Side
	// Rev is the revision of the last header that etcd answered with.
	Rev int64
	// Calls counts what was compared; Differences is what was found.
	Calls       int
	Differences []Difference
	t           testing.TB
	version     string // of the data, see storage
}

// advertised is the URL that both members advertise, so that both derive the same ids.
const advertised = "127.0.0.1"

// NewPair starts both servers.
func NewPair(t testing.TB, args ...string) *Pair {
	t.Helper()
	p := &Pair{t: t}
	start := func(prog proc.Program) *Side {
		s := proc.Start(t, proc.Config{Program: prog, Memory: true,
			Advertise: advertised, Args: args})
		return &Side{Server: s, Conn: s.Dial()}
	}
	p.Etcd, p.Subject = start(proc.Etcd), start(proc.Subject())
	for _, s := range []*Side{p.Etcd, p.Subject} {
		o := invoke(t.Context(), s.Conn, NewCall(&pb.RangeRequest{Key: []byte("k")}))
		if o.Resp == nil {
			t.Fatalf("first range: %v", o.Status)
		}
		h := headerOf(o.Resp)
		s.ids = ids{h.GetClusterId(), h.GetMemberId()}
		if h.GetClusterId() == 0 || h.GetMemberId() == 0 || h.GetRaftTerm() == 0 {
			t.Fatalf("first range: header %v", h)
		}
		p.Rev = h.GetRevision()
	}
	p.storage("3.7.0")
	return p
}

// Close kills both servers.
func (p *Pair) Close() {
	p.Etcd.Server.Kill()
	p.Subject.Server.Kill()
}

// Restart kills both servers and starts them again on what they have on disk.
func (p *Pair) Restart() {
	p.Close()
	p.Etcd.Server.Restart()
	p.Subject.Server.Restart()
	p.storage(p.version)
}

// storage waits until both sides have data of a version: etcd sets that of its data a moment after
// it begins to serve. With users a call without one does not learn the version.
func (p *Pair) storage(version string) {
	p.t.Helper()
	p.version = version
	for _, s := range []*Side{p.Etcd, p.Subject} {
		deadline := time.Now().Add(callTimeout)
		for {
			r, err := pb.NewMaintenanceClient(s.Conn).Status(p.t.Context(), &pb.StatusRequest{})
			if err == nil && r.StorageVersion == version ||
				rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty) {
				break
			}
			if time.Now().After(deadline) {
				p.t.Fatalf("%s: the storage version is not %s: %v, %v", s.Server.Addr(),
					version, r, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
}

// Do makes the call of a request on both sides; see Call.
func (p *Pair) Do(req proto.Message) Outcome { return p.Call(NewCall(req)) }

// Call makes a call on both sides, notes the differences and returns etcd's answer.
func (p *Pair) Call(c Call) Outcome {
	want, _ := p.call(c)
	return want
}

func (p *Pair) call(c Call) (want Outcome, found []Difference) {
	var got Outcome
	var both sync.WaitGroup
	both.Go(func() { want = invoke(p.t.Context(), p.Etcd.Conn, p.Etcd.as(c)) })
	both.Go(func() { got = invoke(p.t.Context(), p.Subject.Conn, p.Subject.as(c)) })
	both.Wait()
	if want.Resp != nil {
		if h := headerOf(want.Resp); h != nil {
			p.Rev = h.GetRevision()
		}
	}
	p.Calls++
	return want, p.note(c.String(), compare(want, p.Etcd.ids, got, p.Subject.ids))
}

// note records differences and returns those that are not explained.
func (p *Pair) note(call string, fields []Field) (found []Difference) {
	for _, f := range fields {
		d := Difference{Call: call, Field: f, Why: explain(call, f), at: p.Calls}
		p.Differences = append(p.Differences, d)
		if d.Why == "" {
			found = append(found, d)
		}
	}
	return found
}

// etcdDied reports whether the last call, whose outcome at etcd was o, made the stock server panic:
// see txnState for a request that it does not survive. Its answer is then no measure, and the
// differences of the call are dropped; the subject must still serve.
func (p *Pair) etcdDied(o Outcome) bool {
	p.t.Helper()
	if o.Status.Code() != codes.Unavailable || !p.Etcd.Server.ExitsWithin(10*time.Second) {
		return false
	}
	log := p.Etcd.Server.Log().String()
	at := strings.Index(log, "panic:")
	if at < 0 {
		return false
	}
	p.t.Logf("etcd: %s", log[at:min(at+2<<10, len(log))])
	if o := invoke(p.t.Context(), p.Subject.Conn,
		NewCall(&pb.RangeRequest{Key: []byte("k")})); o.Resp == nil {
		p.t.Errorf("the subject does not serve either: %v", o.Status)
	}
	p.Differences = slices.DeleteFunc(p.Differences,
		func(d Difference) bool { return d.at == p.Calls })
	return true
}

// Sweep compares the whole key space.
func (p *Pair) Sweep() []Difference {
	_, found := p.call(NewCall(&pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}))
	return found
}

// shown bounds the differences that one test prints.
const shown = 40

// Finish reports what was found since the last Finish as errors of the test. With
// VIGIL_DIFF_REPORT=file every difference is appended to the file.
func (p *Pair) Finish(t testing.TB, tally *Tally) {
	t.Helper()
	tally.add(p.Calls, p.Differences)
	n := 0
	for _, d := range p.Differences {
		if d.Why != "" {
			continue
		}
		if n++; n <= shown {
			t.Errorf("difference: %s", d)
		}
	}
	if n > shown {
		t.Errorf("and %d differences more", n-shown)
	}
	if name := os.Getenv("VIGIL_DIFF_REPORT"); name != "" && n > 0 {
		report(t, name, p.Differences)
	}
	p.Calls, p.Differences = 0, nil
}

func report(t testing.TB, name string, ds []Difference) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, d := range ds {
		if d.Why == "" {
			fmt.Fprintf(f, "%s: %s\n", t.Name(), d)
		}
	}
}

// Tally counts over all tests of a run. It is safe for concurrent use.
type Tally struct {
	mu struct {
		sync.Mutex
		calls, explained, unexplained int
	}
}

func (t *Tally) add(calls int, ds []Difference) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.calls += calls
	for _, d := range ds {
		if d.Why != "" {
			t.mu.explained++
		} else {
			t.mu.unexplained++
		}
	}
}

// String is the line that a run ends with.
func (t *Tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("differential suite: %d calls, %d explained differences, %d unexplained",
		t.mu.calls, t.mu.explained, t.mu.unexplained)
}
