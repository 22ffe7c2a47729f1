package world

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"

	"github.com/tetratelabs/wazero/sys"
)

// Process is a running program. It is a coroutine: it and the world never run at the same time.
type Process struct {
	m     *Machine
	id    int
	args  []string
	rng   *rand.Rand
	fds   map[int32]object
	next  int32
	ports map[uint16]*listener
	line  []byte // an incomplete line of its log
	// resume runs the program until it blocks or ends, stop ends it. The program calls block, which
	// returns false if it must end.
	resume func() (struct{}, bool)
	stop   func()
	block  func(struct{}) bool
	// poll is increased whenever the process blocks, so that an old timer does not wake it.
	poll   uint64
	queued bool // in World.runnable
	killed bool
	exited bool
	dead   bool // the world knows
	err    error
	// frozen is set if its clock stands still.
	frozen bool
}

// object is an open file or socket.
type object interface {
	readable() bool
	writable() bool
	close()
}

type processKey struct{}

func (w *World) newProcess(m *Machine, args []string) *Process {
	w.live++
	p := &Process{m: m, id: w.live, args: args, rng: w.Fork(), fds: map[int32]object{}, next: 10,
		ports: map[uint16]*listener{}}
	p.resume, p.stop = iter.Pull(p.run)
	return p
}

// run runs the program, as a coroutine.
func (p *Process) run(block func(struct{}) bool) {
	p.block = block
	err := p.m.w.guest.begin(context.WithValue(context.Background(), processKey{}, p))
	p.err = err
	var exit *sys.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 0 {
		p.err = nil
	}
	p.exited = true
}

// park lets the world continue until the process is woken.
func (p *Process) park() {
	if !p.block(struct{}{}) {
		panic(sys.NewExitError(137))
	}
}

// wake makes a process run.
func (w *World) wake(p *Process) {
	if p.queued || p.exited || p.m.paused {
		return
	}
	p.queued = true
	w.runnable = append(w.runnable, p)
}

// wakeAfter wakes the process after some time of its machine's clock, unless it runs before.
func (p *Process) wakeAfter(d int64) {
	poll := p.poll
	p.m.w.After(p.m.clock.duration(d), func() {
		if p.poll == poll {
			p.m.w.wake(p)
		}
	})
}

// kill ends the process, which is blocked.
func (p *Process) kill() {
	if !p.exited {
		p.killed, p.dead, p.exited = true, true, true
		p.stop()
	}
	p.ended()
}

// ended releases what the process had.
func (p *Process) ended() {
	for fd := int32(10); fd < p.next; fd++ {
		if o := p.fds[fd]; o != nil {
			o.close()
		}
	}
	clear(p.fds)
	clear(p.ports)
	if p.m.process == p {
		p.m.process = nil
	}
	if !p.killed {
		p.m.w.Note(p.m, "exited: %v", p.err)
		p.m.disk.fs = p.m.disk.fs.Kill()
	}
}

// open gives an object a descriptor.
func (p *Process) open(o object) int32 {
	fd := p.next
	p.next++
	p.fds[fd] = o
	return fd
}

func (p *Process) String() string { return fmt.Sprintf("%s.%d", p.m.Name, p.id) }

// now returns the time of the machine's clock, and lets a moment pass.
func (p *Process) now(wall bool) int64 {
	if p.frozen {
		return 1 // Go's runtime does not accept 0
	}
	p.m.w.now += readStep
	t := p.m.clock.monotonic(p.m.w.now)
	if wall {
		t += p.m.clock.wall
	}
	return t
}
