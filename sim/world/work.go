package world

import "time"

// Work is what the processes of a machine do in one second.
type Work struct {
	// Runs is how often a process was run until it waited, Dials how often it began a connection,
	// Lines the length of its log.
	Runs, Dials, Lines int
}

// workload is the work of a machine in the current second, and the most in any second so far.
type workload struct {
	second    time.Duration
	now, most Work
}

// add counts work that is done at a time.
func (l *workload) add(at time.Duration, w Work) {
	if s := at.Truncate(time.Second); s != l.second {
		l.second, l.now = s, Work{}
	}
	l.now = Work{l.now.Runs + w.Runs, l.now.Dials + w.Dials, l.now.Lines + w.Lines}
	l.most = Work{max(l.most.Runs, l.now.Runs), max(l.most.Dials, l.now.Dials),
		max(l.most.Lines, l.now.Lines)}
}

// Most returns the most of each in a second so far.
func (m *Machine) Most() Work { return m.load.most }
