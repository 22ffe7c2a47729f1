package world

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/sys"
)

// Process is a running program. Its goroutine and the world's never run at the same time.
type Process struct {
	m      *Machine
	id     int
	args   []string
	rng    *rand.Rand
	fds    map[int32]object
	next   int32
	ports  map[uint16]*listener
	line   []byte // an incomplete line of its log
	resume chan struct{}
	// poll is increased whenever the process blocks, so that an old timer does not wake it.
	poll   uint64
	queued bool // in World.runnable
	killed bool
	exited bool // its goroutine has ended
	dead   bool // the world knows
	err    error
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
	p := &Process{m: m, id: w.live, args: args, rng: w.Fork(), fds: map[int32]object{}, next: 10, ports: map[uint16]*listener{}, resume: make(chan struct{})}
	go p.run()
	return p
}

// run runs the program, on a goroutine of its own.
func (p *Process) run() {
	<-p.resume
	if !p.killed {
		ctx := context.WithValue(context.Background(), processKey{}, p)
		mod, err := p.m.w.guest.runtime.InstantiateModule(ctx, p.m.w.guest.module, wazero.NewModuleConfig().WithName(""))
		if mod != nil {
			mod.Close(ctx)
		}
		p.err = err
		var exit *sys.ExitError
		if errors.As(err, &exit) && exit.ExitCode() == 0 {
			p.err = nil
		}
	}
	p.exited = true
	p.m.w.yield <- struct{}{}
}

// park lets the world continue until the process is woken.
func (p *Process) park() {
	p.m.w.yield <- struct{}{}
	<-p.resume
	if p.killed {
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
		p.killed, p.dead = true, true
		p.resume <- struct{}{}
		<-p.m.w.yield
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
	p.m.w.now += readStep
	t := p.m.clock.monotonic(p.m.w.now)
	if wall {
		t += p.m.clock.wall
	}
	return t
}
