package raftnode

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"vigil/internal/store/wal"
)

// TestCarry: a single request is in the log, committed and applied when Propose returns that goes
// through all stages, on the goroutine of the caller. What it leaves is applied by another
// goroutine.
func TestCarry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		for _, data := range []string{"a", "b", "c"} {
			before := len(log.groups())
			m.source.put(data)
			m.Propose(m.Stages()...)
			if got := m.applied(); len(got) == 0 || got[len(got)-1] != data {
				t.Fatalf("%s: applied %q", data, got)
			}
			groups := log.groups()[before:]
			if len(groups) != 1 || !groups[0][0].Sync ||
				string(groups[0][0].Entries[0].GetData()) != data {
				t.Fatalf("%s: written %v", data, groups)
			}
			m.source.put(data + " left")
			m.leaves.Store(true)
			m.Propose(m.Stages()...)
			synctest.Wait()
			m.leaves.Store(false)
		}
		if got := strings.Join(m.applied(), ", "); got != "a, a left, b, b left, c, c left" {
			t.Errorf("applied %s", got)
		}
	})
}

// TestCarryLarge: what is not small is written and applied by other goroutines.
func TestCarryLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		release := ended(t, log.hang())
		m.source.put(strings.Repeat("a", maxSmall+1))
		m.Propose(m.Stages()...) // does not hang
		release()
		synctest.Wait()
		if n := len(m.applied()); n != 1 {
			t.Errorf("%d entries are applied", n)
		}
	})
}

// TestCarryFails: a write that fails is left to another goroutine, which tries again; the caller
// does not wait.
func TestCarryFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		m.source.put("a")
		log.failOnce(errors.New("once"))
		m.Propose(m.Stages()...)
		synctest.Wait()
		if got := m.applied(); len(got) != 1 || got[0] != "a" || m.Err() != nil {
			t.Errorf("applied %q, error %v", got, m.Err())
		}
	})
}

// TestQuiet: a new commit index alone wakes no goroutine, and is written when the node stops.
func TestQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		m.source.put("a")
		m.Propose(m.Stages()...)
		m.appends.mu.Lock()
		waiting, quiet := len(m.appends.mu.msgs), m.appends.mu.quiet
		m.appends.mu.Unlock()
		if waiting != 1 || quiet != 1 {
			t.Errorf("%d messages wait, %d of them quiet", waiting, quiet)
		}
		m.Stop()
		if hard := log.HardState(); hard.GetCommit() != m.index() {
			t.Errorf("the log has commit index %d of %d", hard.GetCommit(), m.index())
		}
	})
}
