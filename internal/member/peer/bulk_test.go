package peer

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// delivery is what a receiver made of a transfer.
type delivery struct {
	from uint64
	meta string
	data []byte
	err  error
}

// keeping makes b keep what arrives.
func keeping(b *member) chan delivery {
	got := make(chan delivery, 10)
	b.recv.Bulk = bulkFunc(func(_ context.Context, from uint64, meta []byte,
		r io.ReadCloser) error {
		data, err := io.ReadAll(r)
		got <- delivery{from, string(meta), data, err}
		return err
	})
	return got
}

func noise(n int) []byte {
	b := make([]byte, n)
	rng := rand.NewChaCha8([32]byte{1})
	rng.Read(b)
	return b
}

func TestBulk(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	got := keeping(b)
	a.start(t)
	b.start(t)
	total := uint64(0)
	for i, n := range []int{0, 1, maxFrame - 1, maxFrame, maxFrame + 1, 20 << 20} {
		data := noise(n)
		var r io.Reader = bytes.NewReader(data)
		if i == 2 {
			r = iotest.HalfReader(r)
		}
		if err := a.SendBulk(t.Context(), b.id, []byte("meta"), r); err != nil {
			t.Fatal(err)
		}
		d := <-got
		if d.from != a.id || d.meta != "meta" || !bytes.Equal(d.data, data) || d.err != nil {
			t.Errorf("%d bytes: got %d from %x with %q, %v", n, len(d.data), d.from, d.meta, d.err)
		}
		total += uint64(n)
	}
	until(t, "counted at the receiver", func() bool { return b.about(a.id).Received.OK == 6 })
	s, r := a.about(b.id).Sent, b.about(a.id).Received
	if s.OK != 6 || s.Bytes != total || s.UnderWay != 0 || r.Bytes != total || r.Failed != 0 ||
		s.Durations.Count() != 6 {
		t.Errorf("%+v, %+v", s, r)
	}
	if err := a.SendBulk(t.Context(), 0x99, nil, nil); !errors.Is(err, ErrNotMember) {
		t.Error(err)
	}
	if err := a.SendBulk(t.Context(), b.id, make([]byte, MaxBulkMeta+1), nil); !errors.Is(err,
		CodeTooLarge) {
		t.Error(err)
	}
	if err := b.SendBulk(t.Context(), a.id, nil, strings.NewReader("x")); !errors.Is(err,
		CodeUnsupported) {
		t.Error(err)
	}
}

// A transfer that is altered or cut on the way is an error on both sides, wherever that happens.
func TestBulkDamage(t *testing.T) {
	const size = 300 << 10
	for _, c := range []struct {
		name string
		flip bool
		at   int64 // bytes into the transfer
	}{
		{"a flipped bit at the beginning", true, 100},
		{"a flipped bit in the middle", true, size / 2},
		{"a flipped bit in a header", true, frameHeader + 4 + maxFrame + frameHeader + 5},
		{"a cut in a frame", false, size / 2},
		{"a cut between two frames", false, frameHeader + 4 + maxFrame + frameHeader},
	} {
		t.Run(c.name, func(t *testing.T) {
			// No pings, so that the bytes of the transfer can be counted off.
			a, b, p := throughProxyCalls(t)
			a.o.PingInterval = time.Hour
			got := keeping(b)
			b.start(t)
			h := a.hello(kindBulk, b.id)
			at := int64(len(h.encode())) + frameHeader + 8 + c.at
			if c.flip {
				p.flip.Store(at)
			} else {
				p.cutAt.Store(at)
			}
			a.Transport.mu.Lock()
			// started, but for the stream of messages
			a.receivers, a.Transport.mu.started = a.recv, true
			a.Transport.mu.Unlock()
			err := a.SendBulk(t.Context(), b.id, []byte("meta"), bytes.NewReader(noise(size)))
			named := func(err error) bool { // a flipped bit is; a cut looks different on each side
				return err != nil &&
					(!c.flip || errors.Is(err, CodeCorrupt) || errors.Is(err, CodeMalformed))
			}
			if !named(err) {
				t.Errorf("the sender got %v", err)
			}
			if d := <-got; !named(d.err) || !bytes.HasPrefix(noise(size), d.data) {
				t.Errorf("the receiver got %d bytes, %v", len(d.data), d.err)
			}
			until(t, "counted", func() bool { return b.about(a.id).Received.Failed == 1 })
			if s := a.about(b.id).Sent; s.Failed != 1 || s.OK != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func (m *member) hello(k kind, to uint64) hello {
	m.Transport.mu.Lock()
	defer m.Transport.mu.Unlock()
	return m.helloLocked(k, to)
}

// An error of either side is reported to the other.
func TestBulkErrors(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	know(1, a, b)
	got := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	b.recv.Bulk = bulkFunc(func(_ context.Context, _ uint64, meta []byte, r io.ReadCloser) error {
		switch string(meta) {
		case "cancel":
			if _, err := r.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
			cancel()
		case "refuse":
			return &Error{Code: CodeBusy, Text: "one is being installed"}
		case "half":
			_, err := io.CopyN(io.Discard, r, 100)
			return err
		case "late":
			_, err := io.Copy(io.Discard, r)
			return errors.Join(err, errors.New("the disk is full"))
		}
		_, err := io.Copy(io.Discard, r)
		got <- err
		return err
	})
	a.start(t)
	b.start(t)
	send := func(meta string,
		r io.Reader) error {
		return a.SendBulk(t.Context(), b.id, []byte(meta), r)
	}
	if err := send("refuse", endless{}); !errors.Is(err, CodeBusy) ||
		!strings.Contains(err.Error(), "one is being installed") {
		t.Error(err)
	}
	if err := send("half", endless{}); err == nil ||
		!strings.Contains(err.Error(), "did not read to the end") {
		t.Error(err)
	}
	if err := send("late", bytes.NewReader(noise(1000))); err == nil ||
		!strings.Contains(err.Error(), "the disk is full") {
		t.Error(err)
	}
	bad := errors.New("segment 7 is gone")
	if err := send("", io.MultiReader(bytes.NewReader(noise(100<<10)),
		iotest.ErrReader(bad))); !errors.Is(err, bad) {
		t.Error(err)
	}
	if err := <-got; !errors.Is(err, CodeAborted) ||
		!strings.Contains(err.Error(), "segment 7 is gone") {
		t.Errorf("the receiver got %v", err)
	}
	if err := a.SendBulk(ctx, b.id, []byte("cancel"), endless{}); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
	if err := <-got; err == nil {
		t.Error("the receiver took a part for the whole")
	}
}

// One transfer to a member at a time; a receiver that is slow holds the sender, and a sender that
// makes no progress is given up.
func TestBulkBackPressure(t *testing.T) {
	a, b := newMember(t, 0xa, func(o *Options) { o.BulkStall = 300 * time.Millisecond }),
		newMember(t, 0xb, func(o *Options) { o.HandshakeTimeout = 4 * time.Second })
	know(1, a, b)
	gate := make(chan struct{})
	defer close(gate)
	entered := make(chan struct{}, 1)
	b.recv.Bulk = bulkFunc(func(_ context.Context, _ uint64, _ []byte, r io.ReadCloser) error {
		entered <- struct{}{}
		<-gate
		return errors.New("too late")
	})
	a.start(t)
	b.start(t)
	done := make(chan error, 1)
	go func() { done <- a.SendBulk(t.Context(), b.id, nil, endless{}) }()
	<-entered
	if err := a.SendBulk(t.Context(), b.id, nil, endless{}); !errors.Is(err, CodeBusy) {
		t.Errorf("a second transfer: %v", err)
	}
	if err := <-done; !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	if n := a.about(b.id).Sent.Bytes; n > 64<<20 {
		t.Errorf("%d bytes were sent to a receiver that took none", n)
	}
	// The receiver is still at it, so the next one is refused there.
	if err := a.SendBulk(t.Context(), b.id, nil, endless{}); !errors.Is(err, CodeBusy) {
		t.Errorf("a transfer while the receiver is busy: %v", err)
	}
}

// A receiver that takes long after the last byte, and a source that takes long for the next one,
// are waited for: signs of life keep the stream open.
func TestBulkPauses(t *testing.T) {
	a, b := pairBulk(t)
	pause := a.o.DeadAfter + a.o.DeadAfter/4 // what is tested is that such a time is waited
	slow := func(_ context.Context, _ uint64, _ []byte, r io.ReadCloser) error {
		_, err := io.Copy(io.Discard, r)
		time.Sleep(pause)
		return err
	}
	a.recv.Bulk, b.recv.Bulk = bulkFunc(slow), bulkFunc(discard)
	a.start(t)
	b.start(t)
	r, w := io.Pipe()
	go func() {
		w.Write(noise(1000))
		time.Sleep(pause)
		w.Write(noise(1000))
		w.Close()
	}()
	// Both at once: two directions, two streams.
	received := make(chan error, 1)
	go func() { received <- b.SendBulk(t.Context(), a.id, nil, bytes.NewReader(noise(1000))) }()
	if err := a.SendBulk(t.Context(), b.id, nil, r); err != nil {
		t.Errorf("a slow source: %v", err)
	}
	if err := <-received; err != nil {
		t.Errorf("a slow receiver: %v", err)
	}
}

func pairBulk(t *testing.T) (a, b *member) {
	t.Helper()
	edit := func(o *Options) { o.DeadAfter = 4 * time.Second }
	a, b = newMember(t, 0xa, edit), newMember(t, 0xb, edit)
	know(1, a, b)
	return a, b
}

func discard(_ context.Context, _ uint64, _ []byte, r io.ReadCloser) error {
	_, err := io.Copy(io.Discard, r)
	return err
}
