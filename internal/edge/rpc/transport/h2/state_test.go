package h2

import "testing"

// connFacts are what a state of a connection stands for.
type connFacts struct {
	greeted, draining, cutOff, failed, shut, lost bool
}

var connMeaning = map[connState]connFacts{
	connShaking:     {},
	connShakingLate: {draining: true},
	connOpen:        {greeted: true},
	connWarned:      {greeted: true, draining: true},
	connEnding:      {greeted: true, draining: true, cutOff: true},
	connFailing:     {failed: true},
	connShut:        {shut: true},
	connLost:        {lost: true},
}

// after is what an event means, in words instead of a table.
func (f connFacts) after(e connEvent) connFacts {
	over := f.failed || f.shut || f.lost
	switch e {
	case connGreet:
		f.greeted = f.greeted || !over
	case connDrain:
		f.draining = f.draining || !over
	case connCutOff:
		switch {
		case over || !f.draining:
		case !f.greeted: // nothing is under way
			f = connFacts{lost: true}
		default:
			f.cutOff = true
		}
	case connFail:
		if !f.shut && !f.lost {
			f = connFacts{failed: true}
		}
	case connFinish:
		if f.failed || f.cutOff {
			f = connFacts{shut: true}
		}
	case connClose:
		f = connFacts{lost: true}
	}
	return f
}

// TestConnMoves compares every move with the meaning of its states.
func TestConnMoves(t *testing.T) {
	if len(connMeaning) != int(connStates) {
		t.Fatalf("%d of %d states have a meaning", len(connMeaning), connStates)
	}
	for s := range connStates {
		f := connMeaning[s]
		if s.queues() == (f.failed || f.shut || f.lost) || s.writes() == (f.shut || f.lost) ||
			s.ignoresRequests() != (f.cutOff || f.failed || f.shut || f.lost) {
			t.Errorf("state %d: queues %v, writes %v, ignores requests %v; it means %+v", s,
				s.queues(), s.writes(), s.ignoresRequests(), f)
		}
		for e := range connEvents {
			next := s
			moved := next.move(e)
			if got, want := connMeaning[next], f.after(e); got != want || moved != (next != s) {
				t.Errorf("state %d, event %d: moves to %d, which means %+v, want %+v; moved is %v",
					s, e, next, got, want, moved)
			}
			if next < s {
				t.Errorf("state %d, event %d: moves back to %d", s, e, next)
			}
		}
	}
}

// streamFacts are what a state of a stream stands for.
type streamFacts struct {
	bodyEnded, held, answered, gone bool
}

var streamMeaning = map[streamState]streamFacts{
	openIdle:        {},
	halfIdle:        {bodyEnded: true},
	openHeld:        {held: true},
	halfHeld:        {bodyEnded: true, held: true},
	openAnswered:    {answered: true},
	halfAnswered:    {bodyEnded: true, answered: true},
	openExpired:     {held: true, answered: true},
	halfExpired:     {bodyEnded: true, held: true, answered: true},
	streamAbandoned: {held: true, gone: true},
	streamClosed:    {gone: true},
}

// after is what an event means, in words instead of a table.
func (f streamFacts) after(e streamEvent) streamFacts {
	switch e {
	case streamBodyEnds:
		f.bodyEnded = !f.gone
	case streamHold:
		f.held = f.held || !f.gone
	case streamFinish:
		f.answered, f.held = !f.gone, false
	case streamExpire:
		f.answered = !f.gone // the handler runs on
	case streamRemove:
		f = streamFacts{held: f.held, gone: true}
	}
	return f
}

// TestStreamMoves compares every move with the meaning of its states.
func TestStreamMoves(t *testing.T) {
	if len(streamMeaning) != int(streamStates) {
		t.Fatalf("%d of %d states have a meaning", len(streamMeaning), streamStates)
	}
	for s := range streamStates {
		f := streamMeaning[s]
		if s.gone() != f.gone || s.answered() != f.answered ||
			s.sends() == (f.answered || f.gone) || s.bodyEnded() != f.bodyEnded {
			t.Errorf("state %d: gone %v, answered %v, sends %v, body ended %v; it means %+v", s,
				s.gone(), s.answered(), s.sends(), s.bodyEnded(), f)
		}
		for e := range streamEvents {
			next := s
			before := next.move(e)
			if got, want := streamMeaning[next], f.after(e); got != want || before != s {
				t.Errorf("state %d, event %d: moves to %d, which means %+v, want %+v; before is %d",
					s, e, next, got, want, before)
			}
		}
	}
}
