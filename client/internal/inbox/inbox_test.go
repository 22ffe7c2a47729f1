package inbox

import (
	"slices"
	"testing"
)

func revisions(list ...int64) []int64 { return list }

func open(from int64, limit int) Inbox[int64] {
	return New(from, limit, false, func(rev *int64) int64 { return *rev })
}

func pop(t *testing.T, b *Inbox[int64], rev int64, events ...int64) {
	t.Helper()
	x, ok := b.Pop()
	if !ok || x.Revision != rev || !slices.Equal(x.Events, events) {
		t.Errorf("popped %d %v (%v), want %d %v", x.Revision, x.Events, ok, rev, events)
	}
}

// The last revision of a fragment is held back until the message after it, and repetitions are left
// out.
func TestFragments(t *testing.T) {
	b := open(5, 1000)
	if !b.Add(revisions(5, 6, 6), 10, true) {
		t.Error("a complete revision is held back")
	}
	if b.Next() != 6 {
		t.Errorf("resumes from %d within a fragment, want 6", b.Next())
	}
	b.Add(revisions(6, 7), 10, false)
	pop(t, &b, 5, 5)
	pop(t, &b, 7, 6, 6, 6, 7)
	if b.Add(revisions(6, 7), 10, false) || b.Next() != 8 {
		t.Errorf("repeated events are added; next is %d", b.Next())
	}
}

// An empty queue takes a message of any size. A watcher that was set aside resumes when half of the
// limit is free.
func TestRoom(t *testing.T) {
	b := open(1, 100)
	if !b.Fits(1000) {
		t.Error("an empty queue does not take a large message")
	}
	b.Add(revisions(1), 60, false)
	b.Add(revisions(2), 40, false)
	if b.Fits(1) {
		t.Error("a full queue takes a message")
	}
	b.SetAside()
	if b.TryResume() || b.RecordProgress(9) {
		t.Error("a watcher that was set aside continues with a full queue")
	}
	pop(t, &b, 1, 1)
	if !b.TryResume() || b.IsAside() {
		t.Error("a watcher does not resume with half of its queue free")
	}
}

// Progress becomes a batch if it was requested, and moves the revision to resume from in any case.
func TestProgress(t *testing.T) {
	b := open(0, 100)
	b.RecordCreated(4)
	if b.RecordProgress(6) || b.Next() != 7 {
		t.Errorf("progress without a request is a batch; next is %d", b.Next())
	}
	b.RequestProgress()
	if !b.RecordProgress(8) {
		t.Error("requested progress is not a batch")
	}
	pop(t, &b, 8)
	if b.RecordStore(9) || !b.RecordStore(7) || b.Store() != 9 {
		t.Errorf("the store was at 9 and is at %d", b.Store())
	}
}
