// Package stage runs the stages of a pipeline on whichever goroutine is available.
//
// A stage has work, and a token that whoever carries out the work holds. A goroutine that has made
// work for another stage goes on with that stage when its own work is done: so a request that is
// alone passes through all stages on one goroutine. When several stages have work at the same time,
// each gets its own goroutine.
//
// # What a caller must do
//
//  1. Make the work known with Post, after it is there. A goroutine that carries out a stage uses
//     PostNext instead: it goes on with that work itself.
//  2. A Work returns when it has found nothing more to do. It may wait, except if it is prompt.
//
// # Invariants
//
//  1. A stage is carried out by at most as many goroutines at once as it has tokens.
//  2. Work that was posted is carried out after Post was called, unless the stage is closed. A
//     stage that waits keeps no other stage from being carried out.
package stage

import (
	"runtime"
	"sync"
)

// Work carries out what there is to do in a stage. prompt means that the goroutine has something
// else to do soon: it must neither wait nor take long. left reports that a goroutine that may wait
// must go on with what was begun.
type Work func(prompt bool) (left bool)

// Line is a list of stages and the goroutines that carry them out.
type Line struct {
	mu struct {
		sync.Mutex
		stages []*Stage
		idle   int // goroutines that wait for work
		closed bool
	}
	// work is signaled for a goroutine that waits for work, rest when a stage has no work left.
	work, rest sync.Cond
	running    sync.WaitGroup
}

// Stage is one stage of a line.
type Stage struct {
	line *Line
	work Work

	// Guarded by line.mu. free counts the tokens that nobody holds. due is set if there may be
	// work, left if somebody who may wait must go on with it.
	tokens, free      int
	due, left, closed bool
}

// NewLine returns a line without stages.
func NewLine() *Line {
	l := &Line{}
	l.work.L, l.rest.L = &l.mu, &l.mu
	return l
}

// Add adds a stage with a number of tokens. Where several stages have work, those that were added
// first come first. It is called before Start.
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
			l.running.Go(l.run)
		}
	}
}

// Close ends the goroutines after the work that was posted. It is called once.
func (l *Line) Close() {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.Unlock()
	l.work.Broadcast()
	l.running.Wait()
}

// run carries out stages that have work.
func (l *Line) run() {
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

// Post makes known that there is work. A goroutine of the line carries it out.
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

// mostCarried is how many stages a call of Carry carries out. A write that is alone needs five: two
// turns of raft, and append, apply and answer.
const mostCarried = 8

// Carry posts work and carries it out on the goroutine of the caller, promptly, unless another one
// does. It goes on with the stages through that get work by that, but not for long, because others
// may always have work. Everything else is left to the goroutines of the line.
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

// Busy reports whether a goroutine carries out the stage, or must go on with it.
func (s *Stage) Busy() bool {
	s.line.mu.Lock()
	defer s.line.mu.Unlock()
	return s.free < s.tokens || s.left
}

// Close lets the work under way end, and returns then: nothing more is carried out.
func (s *Stage) Close() {
	l := s.line
	l.mu.Lock()
	defer l.mu.Unlock()
	s.closed = true
	for s.free < s.tokens || s.left {
		l.rest.Wait()
	}
}
