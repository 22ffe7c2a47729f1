// Package freespace measures how many bytes are free in directories.
//
// A file system may take as long to answer as a disk that hangs. So a separate goroutine asks it,
// one at a time, and only callers that must know the answer wait.
package freespace

import (
	"math"
	"sync"
	"sync/atomic"

	"vigil/internal/vfs"
)

// Gauge measures the directories of a member.
type Gauge struct {
	fs   vfs.FS
	dirs []string
	last atomic.Pointer[[]int64]
	mu   struct {
		sync.Mutex
		under *Measurement
	}
}

// Measurement is one that was started.
type Measurement struct {
	done chan struct{}
	free []int64 // set before done
}

// New returns a gauge for directories.
func New(fs vfs.FS, dirs ...string) *Gauge { return &Gauge{fs: fs, dirs: dirs} }

// Start starts a measurement, unless one is under way, and returns it.
func (g *Gauge) Start() *Measurement {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.under == nil {
		g.mu.under = &Measurement{done: make(chan struct{})}
		go g.measure(g.mu.under)
	}
	return g.mu.under
}

func (g *Gauge) measure(m *Measurement) {
	for _, dir := range g.dirs {
		n, err := g.fs.Free(dir)
		if err != nil {
			n = math.MaxInt64
		}
		m.free = append(m.free, n)
	}
	g.last.Store(&m.free)
	g.mu.Lock()
	g.mu.under = nil
	g.mu.Unlock()
	close(m.done)
}

// Last returns the result of the newest measurement, nil before the first one.
func (g *Gauge) Last() []int64 {
	if p := g.last.Load(); p != nil {
		return *p
	}
	return nil
}

// Done is closed when the measurement is over.
func (m *Measurement) Done() <-chan struct{} { return m.done }

// Free returns, after Done, the bytes that are free for each directory. A directory whose file
// system returned an error counts as one with room without end: nothing is rejected because of a
// number that is not known.
func (m *Measurement) Free() []int64 { return m.free }
