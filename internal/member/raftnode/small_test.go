package raftnode

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"vigil/internal/store/wal"
)

// TestCommitNow: a single request is in the log and committed when CommitNow returns, on the goroutine of the caller.
func TestCommitNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		for _, data := range []string{"a", "b", "c"} {
			before := len(log.groups())
			m.source.put(data)
			run := m.Single.Commit()
			if len(run) != 1 || len(run[0].GetEntries()) != 1 || string(run[0].GetEntries()[0].GetData()) != data {
				t.Fatalf("%s: %v is to be applied", data, run)
			}
			groups := log.groups()[before:]
			if len(groups) != 1 || !groups[0][0].Sync || string(groups[0][0].Entries[0].GetData()) != data {
				t.Fatalf("%s: written %v", data, groups)
			}
			m.source.put(data + " later") // it is not applied before Done
			m.Wake()
			synctest.Wait()
			if n := len(m.applied()); n > 0 && m.applied()[n-1] == data+" later" {
				t.Fatalf("applied %q before %s", m.applied(), data)
			}
			m.carryOut(run)
			m.Single.Done()
			synctest.Wait()
		}
		if got := strings.Join(m.applied(), ", "); got != "a, a later, b, b later, c, c later" {
			t.Errorf("applied %s", got)
		}
	})
}

// TestCommitNowFails: a write that fails is left to the append goroutine, which tries again; the caller does not wait.
func TestCommitNowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := newMemLog(wal.Start{Index: 1, Term: 1})
		m := startMember(t, log, nil)
		synctest.Wait()
		m.source.put("a")
		log.failOnce(errors.New("once"))
		if run := m.Single.Commit(); run != nil {
			t.Fatalf("%v is to be applied after a failed write", run)
		}
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
		m.carryOut(m.Single.Commit())
		m.Single.Done()
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
