// Package world simulates machines, each with a clock, a disk and one process, and the network
// between them. The processes are WebAssembly programs, and all that they see of the world is
// decided here.
//
//  1. One process runs at a time, until it blocks. It blocks only in poll_oneoff.
//  2. Time passes when no process can run, up to the next event, and by a fixed step whenever a
//     process reads a clock.
//  3. Every choice comes from the seed. So the same program, plan and seed give the same events,
//     and Hash proves it.
//
// A World belongs to one goroutine. Worlds are independent of each other and can run concurrently.
package world

import (
	"container/heap"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"
)

// readStep is how much time passes when a process reads a clock.
const readStep = 300 * time.Nanosecond

// World is a simulated world.
type World struct {
	guest    *Guest
	rng      *rand.Rand
	now      time.Duration
	events   events
	seq      uint64
	runnable []*Process
	machines []*Machine
	network  network
	trace    trace
	switches uint64
	live     int // processes

	// Reported is called for each message of a process.
	Reported func(m *Machine, b []byte)
	// Exited is called when a process ends by itself.
	Exited func(m *Machine, err error)
	// Printed is called for each line of the log of a process.
	Printed func(m *Machine, line []byte)
	// err ends the run.
	err error
}

// New returns a world whose choices come from seed. A non-nil out receives a line for each event.
func New(g *Guest, seed uint64, out io.Writer) *World {
	w := &World{guest: g, rng: rand.New(rand.NewPCG(seed, 0x5eed))}
	w.network.w = w
	w.trace.open(out)
	return w
}

// Now returns the time since the beginning.
func (w *World) Now() time.Duration { return w.now }

// Switches returns how often a process was run.
func (w *World) Switches() uint64 { return w.switches }

// Lines returns the number of lines that the trace has so far.
func (w *World) Lines() uint64 { return w.trace.lines }

// Fork returns a source of random numbers that depends on the seed and on what happened so far.
func (w *World) Fork() *rand.Rand { return rand.New(rand.NewPCG(w.rng.Uint64(), w.rng.Uint64())) }

// Machines returns all machines.
func (w *World) Machines() []*Machine { return w.machines }

type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := len(*e) - 1
	x := (*e)[last]
	(*e)[last] = event{}
	*e = (*e)[:last]
	return x
}

// At calls do at a time, or at once if it has passed.
func (w *World) At(at time.Duration, do func()) {
	w.seq++
	heap.Push(&w.events, event{at, w.seq, do})
}

// After calls do after some time.
func (w *World) After(d time.Duration, do func()) { w.At(w.now+d, do) }

// Fail ends the run with an error.
func (w *World) Fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.Note(nil, "failure: %v", w.err)
	}
}

var errIdle = errors.New("nothing can happen any more")

// Run lets time pass up to a time, or until done returns true.
func (w *World) Run(until time.Duration, done func() bool) error {
	for w.err == nil && (done == nil || !done()) {
		switch {
		case len(w.events) > 0 && w.events[0].at <= w.now:
			heap.Pop(&w.events).(event).do()
		case len(w.runnable) > 0:
			w.runOne()
		case w.now >= until:
			return nil
		case len(w.events) == 0:
			return errIdle
		default:
			w.now = min(w.events[0].at, until)
		}
	}
	return w.err
}

// runOne runs one of the processes that can run, until it blocks or ends.
func (w *World) runOne() {
	n := w.rng.IntN(len(w.runnable))
	p := w.runnable[n]
	last := len(w.runnable) - 1
	w.runnable[n] = w.runnable[last]
	w.runnable = w.runnable[:last]
	p.queued = false
	if p.m.paused || p.exited {
		return
	}
	w.resume(p)
}

func (w *World) resume(p *Process) {
	w.switches++
	p.m.load.add(w.now, Work{Runs: 1})
	p.resume()
	w.trace.mix('s', uint64(p.id), uint64(w.now))
	if p.exited && !p.dead {
		p.dead = true
		p.ended()
		if w.Exited != nil {
			w.Exited(p.m, p.err)
		}
	}
}

// Close ends all processes.
func (w *World) Close() {
	for _, m := range w.machines {
		if m.process != nil {
			m.process.kill()
		}
	}
}

// Hash returns the hash of all events.
func (w *World) Hash() string { return w.trace.sum() }
