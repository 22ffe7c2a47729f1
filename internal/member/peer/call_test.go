package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vigil/internal/member/calls"
)

// echo answers with who called and what.
func echo(_ context.Context, from Caller, kind uint8, payload []byte) ([]byte, error) {
	return fmt.Appendf(nil, "%x/%d/%s", from.Member, kind, payload), nil
}

func TestCalls(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	b.recv.Calls = callFunc(func(ctx context.Context, from Caller, kind uint8,
		payload []byte) ([]byte, error) {
		switch kind {
		case 2:
			return nil, &Error{Code: CodeBusy, Text: "not now"}
		case 3:
			return nil, errors.New("it went wrong")
		case 4:
			return make([]byte, 2<<20), nil
		case 5:
			return bytes.Repeat(payload, 10), nil
		case 6:
			d, ok := ctx.Deadline()
			if left := time.Until(d); !ok || left > time.Minute {
				return nil, fmt.Errorf("the deadline is in %v", left)
			}
		}
		return echo(ctx, from, kind, payload)
	})
	a.start(t)
	b.start(t)
	ctx := t.Context()
	call := func(kind uint8, payload string) (string, error) {
		out, err := a.Call(ctx, b.id, kind, []byte(payload))
		return string(out), err
	}
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			want := fmt.Sprintf("a/1/call %d", i)
			if got, err := call(1, want[4:]); got != want || err != nil {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
	if _, err := call(2, ""); !errors.Is(err, CodeBusy) ||
		!strings.Contains(err.Error(), "busy: not now") {
		t.Error(err)
	}
	if _, err := call(3, ""); !errors.Is(err, CodeFailed) ||
		err.Error() != "call to member b: it went wrong" {
		t.Error(err)
	}
	if _, err := call(4, ""); !errors.Is(err, CodeTooLarge) ||
		!strings.Contains(err.Error(), "answer of 2097152 bytes, the most is 1048576") {
		t.Error(err)
	}
	if _, err := call(1, strings.Repeat("x", 2<<20)); !errors.Is(err, CodeTooLarge) {
		t.Error(err)
	}
	long := strings.Repeat("0123456789", 10_000)
	if got, err := call(5, long); err != nil || got != strings.Repeat(long, 10) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	short, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if out, err := a.Call(short, b.id, 6, nil); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := a.Call(ctx, 0x99, 1, nil); !errors.Is(err, ErrNotMember) {
		t.Error(err)
	}
	if _, err := b.Call(ctx, a.id, 1, nil); !errors.Is(err, CodeUnsupported) {
		t.Errorf("a serves no calls, and said %v", err)
	}
	if n := b.about(a.id); n.ReceivedBytes == 0 {
		t.Error("bytes are not counted")
	}
	a.Close()
	if _, err := call(1, ""); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// Strangers may make calls that are open to them, by URL only, and learn who answers.
func TestCallsOfStrangers(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	a.recv.Calls, b.recv.Calls = callFunc(echo), callFunc(echo)
	a.start(t)
	b.start(t)
	ctx := t.Context()
	c := Client{Version: "stranger"}
	got, err := c.Call(ctx, b.url, calls.FirstOpen, []byte("who"))
	if err != nil || string(got.Payload) != "0/128/who" || got.ClusterID != testCluster ||
		got.MemberID != b.id || got.Version != "test-11" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := c.Call(ctx, b.url, calls.FirstOpen-1, nil); !errors.Is(err, CodeUnknown) ||
		!strings.Contains(err.Error(), "for members of the cluster") {
		t.Error(err)
	}
	got, err = a.CallURL(ctx, b.url, 1, []byte("x"))
	if err != nil || string(got.Payload) != "a/1/x" {
		t.Errorf("%+v, %v", got, err)
	}
	// An id alone makes no member.
	c = Client{MemberID: 0x77}
	if got, err = c.Call(ctx, b.url, calls.FirstOpen, nil); err != nil ||
		string(got.Payload) != "0/128/" {
		t.Errorf("%+v, %v", got, err)
	}
	c = Client{ClusterID: 0xc2}
	if _, err = c.Call(ctx, b.url, calls.FirstOpen, nil); !errors.Is(err, CodeCluster) {
		t.Error(err)
	}
	if _, err = c.Call(ctx, "http://127.0.0.1:1", calls.FirstOpen, nil); err == nil {
		t.Error("no member answered")
	}
	b.SetMembers(2, nil, []uint64{a.id})
	if _, err := a.CallURL(ctx, b.url, calls.FirstOpen, nil); !errors.Is(err, CodeRemoved) {
		t.Error(err)
	}
}

// Calls under way are bounded; what is beyond is refused and takes no effect.
func TestCallsAreBounded(t *testing.T) {
	a, b := newMember(t, 0xa, func(o *Options) { o.MaxCalls = 100 }),
		newMember(t, 0xb, func(o *Options) { o.MaxCalls = 3 })
	know(1, a, b)
	gate := make(chan struct{})
	var running, most atomic.Int64
	b.recv.Calls = callFunc(func(ctx context.Context, _ Caller, _ uint8, _ []byte) ([]byte, error) {
		n := running.Add(1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		defer running.Add(-1)
		<-gate
		return nil, nil
	})
	a.start(t)
	b.start(t)
	results := make(chan error, 20)
	for range 20 {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			_, err := a.Call(ctx, b.id, 1, nil)
			results <- err
		}()
	}
	for range 17 {
		if err := <-results; !errors.Is(err, CodeBusy) {
			t.Error(err)
		}
	}
	close(gate)
	for range 3 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if most.Load() > 3 {
		t.Errorf("%d ran at once", most.Load())
	}
}

// A caller that stops waiting returns, the stream continues, and the server's context ends with the
// time that the caller had.
func TestCallDeadline(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	const most = 100
	began, ended, left := make(chan struct{}, most), make(chan struct{}, most), make(chan struct{})
	b.recv.Calls = callFunc(func(ctx context.Context, from Caller, kind uint8,
		payload []byte) ([]byte, error) {
		if kind == 1 {
			began <- struct{}{}
			<-ctx.Done()
			ended <- struct{}{}
			<-left
		}
		return echo(ctx, from, kind, payload)
	})
	a.start(t)
	b.start(t)
	if _, err := a.Call(t.Context(), b.id, 2, nil); err != nil {
		t.Fatal(err)
	}
	// The time of a call may be over before it is sent: then there is another one, with more time.
	for wait := 20 * time.Millisecond; len(began) == 0; wait *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		if _, err := a.Call(ctx, b.id, 1, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		cancel()
	}
	<-ended
	close(left)
	if out, err := a.Call(t.Context(), b.id, 2, nil); err != nil || string(out) != "a/2/" {
		t.Errorf("%s, %v", out, err)
	}
}

// A stream that breaks fails the calls under way, and the next one makes another stream.
func TestCallsSurviveReset(t *testing.T) {
	a, b, p := throughProxyCalls(t)
	entered := make(chan struct{}, 1)
	b.recv.Calls = callFunc(func(ctx context.Context, from Caller, kind uint8,
		payload []byte) ([]byte, error) {
		if kind == 1 {
			entered <- struct{}{}
			<-ctx.Done()
		}
		return echo(ctx, from, kind, payload)
	})
	a.start(t)
	b.start(t)
	for range 5 {
		failed := make(chan error)
		go func() {
			_, err := a.Call(t.Context(), b.id, 1, nil)
			failed <- err
		}()
		<-entered
		p.reset()
		if err := <-failed; !errors.Is(err, ErrDisconnected) {
			t.Errorf("the call ended with %v", err)
		}
		until(t, "calls work again",
			func() bool { _, err := a.Call(t.Context(), b.id, 2, nil); return err == nil })
	}
}

func throughProxyCalls(t *testing.T) (a, b *member, p *proxy) {
	t.Helper()
	a, b = newMember(t, 0xa), newMember(t, 0xb)
	p = newProxy(t, b.url)
	a.SetMembers(1, []Member{{b.id, []string{p.url}}}, nil)
	b.SetMembers(1, []Member{{a.id, []string{a.url}}}, nil)
	return a, b, p
}
