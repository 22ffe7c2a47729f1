package world

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"vigil/internal/vfs/memfs"
)

// Machine is a machine with a clock, a disk and at most one process.
type Machine struct {
	Name string
	Addr netip.Addr
	w    *World
	n    int
	on   bool // it has power
	// process is nil if none runs.
	process *Process
	starts  int
	paused  bool
	clock   clock
	disk    disk
	load    workload
}

// Machine adds a machine to the world.
func (w *World) Machine(name string, addr netip.Addr) *Machine {
	m := &Machine{Name: name, Addr: addr, w: w, n: len(w.machines), on: true}
	m.clock.wall = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC).UnixNano()
	m.disk.m, m.disk.fs = m, memfs.New()
	w.machines = append(w.machines, m)
	return m
}

// Running reports whether the machine has a process, paused or not.
func (m *Machine) Running() bool { return m.process != nil }

// Starts counts the processes that were started.
func (m *Machine) Starts() int { return m.starts }

// Start starts the process of the machine, which has none.
func (m *Machine) Start(args ...string) {
	m.on = true
	m.starts++
	m.disk.open()
	m.process = m.w.newProcess(m, args)
	m.w.Note(m, "start %d", m.starts)
	m.w.network.booted(m)
	m.w.wake(m.process)
}

// Kill ends the process. What it wrote stays in the memory of the machine, and its connections are
// closed.
func (m *Machine) Kill() {
	m.w.Note(m, "killed")
	if m.process != nil {
		m.process.kill()
	}
	m.disk.fs = m.disk.fs.Kill()
}

// PowerOff ends the process and loses what was not synced, or parts of it. Other machines do not
// notice.
func (m *Machine) PowerOff() {
	m.w.Note(m, "power failure")
	m.on = false
	m.w.network.vanish(m)
	if m.process != nil {
		m.process.kill()
	}
	m.disk.fs = m.disk.fs.Crash(m.w.Fork())
}

// Wipe replaces the disk by an empty one. No process runs.
func (m *Machine) Wipe() {
	m.w.Note(m, "new disk")
	m.disk.fs = memfs.New()
}

// Flip flips a bit under the files of the machine. It chooses a file, and a byte below the last
// byte that is not zero and at least spare(name) bytes before it. It returns the file and the
// place, or an empty name if there is none.
func (m *Machine) Flip(rng *rand.Rand, spare func(name string) int64) (name string, off int64) {
	names := m.disk.files("/")
	rng.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	for _, name := range names {
		end := m.disk.used(name) - spare(name)
		if end <= 0 {
			continue
		}
		off, bit := rng.Int64N(end), uint(rng.IntN(8))
		if err := m.disk.fs.Flip(name, off, bit); err == nil {
			m.w.Note(m, "bit %d of byte %d of %s flips", bit, off, name)
			return name, off
		}
	}
	return "", 0
}

// Pause stops the process until Resume. Its clock goes on.
func (m *Machine) Pause() {
	m.w.Note(m, "paused")
	m.paused = true
}

// Resume continues the process.
func (m *Machine) Resume() {
	m.w.Note(m, "resumed")
	m.paused = false
	if m.process != nil {
		m.w.wake(m.process)
	}
}

// clock is the clock of a machine. It counts the world's time, faster or slower by a rate.
type clock struct {
	at   time.Duration // when the rate was set
	mono int64         // the reading then, in nanoseconds
	ppm  int64         // how much faster it runs, in millionths
	wall int64         // the difference of the wall clock, in nanoseconds
}

func (c *clock) monotonic(now time.Duration) int64 {
	d := int64(now - c.at)
	return c.mono + d + d/1e6*c.ppm
}

// duration converts a duration of the clock to one of the world.
func (c *clock) duration(d int64) time.Duration {
	return time.Duration(d - d/(1e6+c.ppm)*c.ppm)
}

// SetRate makes the clock run faster by so many millionths, or slower.
func (m *Machine) SetRate(ppm int64) {
	m.w.Note(m, "clock rate %+d ppm", ppm)
	m.clock.mono, m.clock.at, m.clock.ppm = m.clock.monotonic(m.w.now), m.w.now, ppm
}

// Jump sets the wall clock forward or back. The monotonic clock is not affected.
func (m *Machine) Jump(d time.Duration) {
	m.w.Note(m, "wall clock jumps by %v", d)
	m.clock.wall += int64(d)
}
