// Package stage runs the stages of a pipeline on whichever goroutine is available.
//
// A stage has work and a token; the goroutine that carries out the work holds the token. A
// goroutine that made work for another stage goes on with that stage when its own work is done. So
// a lone request passes through all stages on one goroutine. When several stages have work at the
// same time, each gets its own goroutine.
//
// # What a caller must do
//
//  1. Queue the work first, then call Post. A goroutine that carries out a stage calls PostNext
//     instead, and goes on with that work itself.
//  2. A Work returns when it finds nothing more to do. It may block unless prompt is set.
//
// # Invariants
//
//  1. At most as many goroutines carry out a stage at once as it has tokens.
//  2. After Post, some goroutine carries out the work, unless the stage is closed. A stage that
//     blocks does not keep other stages from running.
package stage

import (
	"runtime"
	"sync"
)

// Work does the work of a stage. If prompt is set, the goroutine has something else to do soon:
// Work must neither block nor take long. left reports that work remains for a goroutine that may
// block.
type Work func(prompt bool) (left bool)

// Line holds stages and the goroutines that carry them out.
type Line struct {
	mu struct {
		sync.Mutex
		stages []*Stage
		idle   int // goroutines that wait for work
		closed bool
	}
	// work wakes a goroutine that waits for work. rest is signaled when a stage has no work left.
	work, rest sync.Cond
	running    sync.WaitGroup
}

// Stage is one stage of a line.
type Stage struct {
	line *Line
	work Work

	// Guarded by line.mu. free counts the tokens that nobody holds. due is set if there may be
	// work. left is set if a goroutine that may block must go on with it.
	tokens, free      int
	due, left, closed bool
}

// NewLine returns a line without stages.
func NewLine() *Line {
	l := &Line{}
	l.work.L, l.rest.L = &l.mu, &l.mu
	return l
}

// Add adds a stage with a number of tokens. If several stages have work, the one added first comes
// first. Call it before Start.
func (l *Line) Add(work Work, tokens int) *Stage {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Stage{line: l, work: work, tokens: tokens, free: tokens}
	l.mu.stages = append(l.mu.stages, s)
	return s
}

// Start starts the goroutines: one for each token, so that there is always one for a stage whose
// token is free.
func (l *Line) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.mu.stages {
		for range s.tokens {
			l.running.Go(l.runStages)
		}
	}
}

// Close ends the goroutines after they have done the posted work. Call it once.
func (l *Line) Close() {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.work.Broadcast()
	l.running.Wait()
}

// runStages carries out stages that have work until Close.
func (l *Line) runStages() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		s := l.next()
		switch {
		case s != nil:
			s.carryOut(false)
			// Others run between two stages: what they start joins the next group. Without that,
			// groups are smaller, and a busy member takes a fifth more processor time for a put.
			l.mu.Unlock()
			runtime.Gosched()
			l.mu.Lock()
		case l.mu.closed:
			return
		default:
			l.mu.idle++
			l.work.Wait()
			l.mu.idle--
		}
	}
}

// next returns a stage that has work and a free token. mu is held.
func (l *Line) next() *Stage {
	for _, s := range l.mu.stages {
		if s.ready() {
			return s
		}
	}
	return nil
}

// wakeOthers wakes a goroutine if a stage has work and a free token. mu is held.
func (l *Line) wakeOthers() {
	if l.mu.idle > 0 && l.next() != nil {
		l.work.Signal()
	}
}

// ready reports whether s has work and a free token. line.mu is held.
func (s *Stage) ready() bool { return s.free > 0 && (s.left || s.due && !s.closed) }

// carryOut does the work of a stage that is ready. line.mu is held.
func (s *Stage) carryOut(prompt bool) {
	l := s.line
	s.free--
	s.due, s.left = false, false
	l.wakeOthers()
	l.mu.Unlock()
	left := s.work(prompt)
	l.mu.Lock()
	s.free++
	s.left = s.left || left
	if s.closed {
		l.rest.Broadcast()
	}
}

// Post announces work. A goroutine of the line carries it out.
func (s *Stage) Post() {
	l := s.line
	l.mu.Lock()
	s.due = true
	wake := s.ready() && l.mu.idle > 0
	l.mu.Unlock()
	if wake {
		l.work.Signal()
	}
}

// PostNext is Post by a goroutine that carries out a stage of the line: it goes on with this one.
func (s *Stage) PostNext() {
	l := s.line
	l.mu.Lock()
	s.due = true
	l.mu.Unlock()
}

// mostCarried is the number of stages that one call of Carry carries out at most. A lone write
// needs five: two turns of raft, and append, apply and answer.
const mostCarried = 8

// Carry posts work and carries it out promptly on the caller's goroutine, unless another goroutine
// already does. It goes on with those stages of through that get work from it, but at most
// mostCarried, because others may always have work. It leaves everything else to the goroutines of
// the line.
func (s *Stage) Carry(through ...*Stage) {
	l := s.line
	l.mu.Lock()
	defer l.mu.Unlock()
	s.due = true
	next := s
	for range mostCarried {
		if next == nil || next.left || !next.ready() {
			break
		}
		next.carryOut(true)
		next = nil
		for _, t := range through {
			if t.ready() {
				next = t
				break
			}
		}
	}
	l.wakeOthers()
}

// Busy reports whether a goroutine carries out the stage or has to go on with it.
func (s *Stage) Busy() bool {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	return s.free < s.tokens || s.left
}

// Close waits for the work under way. After it returns, the stage does no more work.
func (s *Stage) Close() {
	l := s.line
	l.mu.Lock()
	defer l.mu.Unlock()
	s.closed = true
	for s.free < s.tokens || s.left {
		l.rest.Wait()
	}
}
