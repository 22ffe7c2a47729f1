package world

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// pair returns a world with two machines whose processes are not run, and the processes.
func pair(t *testing.T, seed uint64) (w *World, a, b *Process) {
	t.Helper()
	w = New(nil, seed, nil)
	for n, p := range []**Process{&a, &b} {
		m := w.Machine(string(rune('a'+n)), netip.AddrFrom4([4]byte{10, 0, 0, byte(n + 1)}))
		*p = &Process{m: m, id: n, fds: map[int32]object{}, next: 10, ports: map[uint16]*listener{},
			queued: true, stop: func() {}}
		m.process = *p
	}
	return w, a, b
}

// connect opens a connection from a to a listener of b.
func connect(t *testing.T, w *World, a, b *Process) (from, to *endpoint) {
	t.Helper()
	l := &listener{p: b, port: 80}
	b.ports[80] = l
	from = w.network.dial(a, netip.AddrPortFrom(b.m.Addr, 80))
	pass(w, time.Second)
	if !from.connected || len(l.backlog) != 1 {
		t.Fatalf("connected %t, %d connections accepted", from.connected, len(l.backlog))
	}
	return from, b.fds[l.accept()].(*endpoint)
}

// pass lets time pass.
func pass(w *World, d time.Duration) { _ = w.Run(w.now+d, nil) }

func write(t *testing.T, e *endpoint, text string) {
	t.Helper()
	if n, errno := e.write([]byte(text)); n != len(text) || errno != wasiOK {
		t.Fatalf("write of %q: %d bytes, error %d", text, n, errno)
	}
}

// received reads what has arrived.
func received(e *endpoint) string {
	b := make([]byte, 1<<20)
	n, _ := e.read(b)
	return string(b[:n])
}

// TestEvents: events are in the order of their times, those of one time in the order in which they
// were planned.
func TestEvents(t *testing.T) {
	w := New(nil, 1, nil)
	var got []int
	for n, at := range []time.Duration{3, 1, 2, 1, 3} {
		w.At(at, func() { got = append(got, n) })
	}
	w.At(2, func() { w.After(0, func() { got = append(got, 9) }) })
	if err := w.Run(2, nil); err != nil || w.Now() != 2 || !slices.Equal(got, []int{1, 3, 2, 9}) {
		t.Errorf("at %v: %v, %v", w.Now(), got, err)
	}
	if err := w.Run(10, nil); err != errIdle || !slices.Equal(got, []int{1, 3, 2, 9, 0, 4}) {
		t.Errorf("at the end: %v, %v", got, err)
	}
}

// TestMost: work is counted for each second.
func TestMost(t *testing.T) {
	w, a, b := pair(t, 2)
	for _, n := range []int{2, 5, 3} {
		for range n {
			w.network.dial(a, netip.AddrPortFrom(b.m.Addr, 80))
		}
		a.print([]byte("line\nnext\n"))
		w.After(time.Second, func() {})
		pass(w, time.Second)
	}
	if got, want := a.m.Most(), (Work{Dials: 5, Lines: 2}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestOrder: data arrives in order, although each segment has a delay of its own.
func TestOrder(t *testing.T) {
	w, a, b := pair(t, 2)
	w.Link(a.m, b.m).Jitter = time.Second
	from, to := connect(t, w, a, b)
	want := ""
	for n := range 50 {
		write(t, from, string(rune('A'+n)))
		want += string(rune('A' + n))
	}
	pass(w, 2*time.Second)
	if got := received(to); got != want {
		t.Errorf("received %q, want %q", got, want)
	}
	from.close()
	pass(w, 2*time.Second)
	if n, errno := to.read(make([]byte, 1)); n != 0 || errno != wasiOK || !to.ended {
		t.Errorf("after the end: %d bytes, error %d, ended %t", n, errno, to.ended)
	}
}

// TestCut: a cut link delivers nothing and reports nothing, in its direction only. After it is
// healed all arrives.
func TestCut(t *testing.T) {
	w, a, b := pair(t, 3)
	from, to := connect(t, w, a, b)
	w.Cut(a.m, b.m)
	write(t, from, "lost?")
	write(t, to, "answer")
	pass(w, time.Hour)
	if to.readable() || from.broken {
		t.Errorf("the cut link delivered %q, or broke the connection: %t",
			received(to), from.broken)
	}
	if got := received(from); got != "answer" {
		t.Errorf("the other direction delivered %q", got)
	}
	w.Heal(a.m, b.m)
	pass(w, 2*time.Second)
	if got := received(to); got != "lost?" {
		t.Errorf("after the cut: %q", got)
	}
}

// TestReset: both ends learn that a connection is broken, after they have read what had arrived.
func TestReset(t *testing.T) {
	w, a, b := pair(t, 4)
	from, to := connect(t, w, a, b)
	write(t, from, "before")
	pass(w, time.Second)
	w.Reset(b.m, a.m)
	if got := received(to); got != "before" {
		t.Errorf("received %q", got)
	}
	for _, e := range []*endpoint{from, to} {
		if _, errno := e.read(make([]byte, 1)); errno != wasiReset {
			t.Errorf("a read has the error %d", errno)
		}
		if _, errno := e.write([]byte("x")); errno != wasiReset {
			t.Errorf("a write has the error %d", errno)
		}
	}
}

// TestRefused: a port without a listener, and an address without a machine.
func TestRefused(t *testing.T) {
	w, a, b := pair(t, 5)
	for _, to := range []netip.AddrPort{netip.AddrPortFrom(b.m.Addr, 81),
		netip.MustParseAddrPort("10.9.9.9:80")} {
		e := w.network.dial(a, to)
		pass(w, time.Second)
		if !e.refused || e.connected {
			t.Errorf("%v: refused %t, connected %t", to, e.refused, e.connected)
		}
	}
}

// TestWindow: a connection takes only so much before the other end reads.
func TestWindow(t *testing.T) {
	w, a, b := pair(t, 6)
	from, to := connect(t, w, a, b)
	big := make([]byte, window+1)
	if n, _ := from.write(big); n != window || from.writable() {
		t.Errorf("it took %d bytes, and takes more: %t", n, from.writable())
	}
	if _, errno := from.write(big); errno != wasiAgain {
		t.Errorf("a write to a full connection has the error %d", errno)
	}
	pass(w, time.Second)
	if n := len(received(to)); n != window || !from.writable() {
		t.Errorf("received %d bytes; it takes more: %t", n, from.writable())
	}
}

// TestPowerOff: the other end does not notice a machine without power, until the machine answers
// again.
func TestPowerOff(t *testing.T) {
	w, a, b := pair(t, 7)
	from, _ := connect(t, w, a, b)
	b.m.PowerOff()
	write(t, from, "x")
	pass(w, time.Minute)
	if from.broken || from.readable() {
		t.Errorf("the other end noticed: broken %t", from.broken)
	}
	b.m.on = true
	w.network.booted(b.m)
	pass(w, 4*time.Second)
	if !from.broken {
		t.Error("the connection is not broken after the machine has started again")
	}
}

// TestClock: a rate changes the monotonic clock and durations, a jump only the wall clock.
func TestClock(t *testing.T) {
	w, a, _ := pair(t, 8)
	read := func(wall bool) time.Duration { return time.Duration(a.now(wall)) }
	w.now = 10 * time.Second
	a.m.SetRate(100_000)
	before := read(false)
	w.now += 10 * time.Second
	if d := read(false) - before; d < 11*time.Second || d > 11*time.Second+time.Millisecond {
		t.Errorf("10 s take %v by a clock that is 10%% faster", d)
	}
	if d := a.m.clock.duration(int64(11 * time.Second)); d < 10*time.Second-time.Millisecond ||
		d > 10*time.Second+time.Millisecond {
		t.Errorf("11 s of that clock take %v", d)
	}
	mono, wall := read(false), read(true)
	a.m.Jump(-time.Hour)
	if d := read(false) - mono; d < 0 || d > time.Millisecond {
		t.Errorf("a jump changed the monotonic clock by %v", d)
	}
	if d := read(true) - wall; d < -time.Hour || d > -time.Hour+time.Millisecond {
		t.Errorf("the jump of the wall clock is %v", d)
	}
	a.m.SetRate(0)
	if d := read(false) - mono; d < 0 || d > time.Millisecond {
		t.Errorf("the end of a rate changed the reading by %v", d)
	}
}

// TestDisk: a kill keeps everything, a power failure at least what was synced.
func TestDisk(t *testing.T) {
	lost := false
	for seed := range uint64(20) {
		w, a, _ := pair(t, seed)
		a.m.disk.open()
		f, err := a.m.disk.faulty.Create("/f")
		if err != nil {
			t.Fatal(err)
		}
		put := func(text string, at int64) {
			t.Helper()
			if _, err := f.WriteAt([]byte(text), at); err != nil {
				t.Fatal(err)
			}
		}
		put("synced", 0)
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := a.m.disk.faulty.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
		put("more", 6)
		content := func() string {
			t.Helper()
			f, err := a.m.disk.fs.Open("/f")
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, 10)
			n, _ := f.ReadAt(b, 0)
			return string(b[:n])
		}
		if a.m.Kill(); content() != "syncedmore" {
			t.Errorf("seed %d: after a kill the file has %q", seed, content())
		}
		if a.m.PowerOff(); len(content()) < 6 || content()[:6] != "synced" {
			t.Errorf("seed %d: after a power failure the file has %q", seed, content())
		}
		lost = lost || content() != "syncedmore"
		w.Close()
	}
	if !lost {
		t.Error("no power failure lost anything")
	}
}

// TestHash: the same seed and events have the same hash, any other ones another.
func TestHash(t *testing.T) {
	run := func(seed uint64, text string) string {
		w, a, b := pair(t, seed)
		from, _ := connect(t, w, a, b)
		write(t, from, text)
		pass(w, time.Second)
		return w.Hash()
	}
	one := run(1, "text")
	if run(1, "text") != one || run(2, "text") == one || run(1, "Text") == one {
		t.Errorf("hashes: %s, %s, %s, %s", one, run(1, "text"), run(2, "text"), run(1, "Text"))
	}
}

// TestUsed: the zeros at the end of a file do not count, however many there are.
func TestUsed(t *testing.T) {
	_, a, _ := pair(t, 1)
	for n, c := range []struct{ size, last, want int64 }{{0, -1, 0}, {10, -1, 0}, {10, 3, 4},
		{10, 9, 10}, {300 << 10, -1, 0}, {300 << 10, 0, 1}, {300 << 10, 44<<10 - 1, 44 << 10},
		{300 << 10, 44 << 10, 44<<10 + 1}, {300 << 10, 300<<10 - 1, 300 << 10}} {
		name := fmt.Sprint("/f", n)
		f, err := a.m.disk.fs.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Truncate(c.size); err != nil {
			t.Fatal(err)
		}
		if c.last >= 0 {
			if _, err := f.WriteAt([]byte{1}, c.last); err != nil {
				t.Fatal(err)
			}
		}
		if got := a.m.disk.used(name); got != c.want {
			t.Errorf("%d bytes with the last one at %d: got %d", c.size, c.last, got)
		}
	}
}
