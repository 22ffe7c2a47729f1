package session

import (
	"slices"
	"testing"

	"vigil/client/internal/request"
)

func open(watchers ...string) *Session[string, string] {
	s := New[string, string]()
	for _, w := range watchers {
		s.RequestWatcher(w, &request.WatchCreate{Key: w})
	}
	return s
}

func accept(t *testing.T, s *Session[string, string], id int64, want string) {
	t.Helper()
	if w, ok, known := s.RecordCreated(id, 10); w != want || ok != (want != "") || !known {
		t.Errorf("accepting %d gave %q, %v, %v, want %q", id, w, ok, known, want)
	}
}

// A refusal has no id: it is assigned when only one request remains for it.
func TestRefusalInAnyOrder(t *testing.T) {
	s := open("a", "b", "c")
	s.RecordRefusal("no")
	if r := s.TakeRefused(); len(r) != 0 {
		t.Fatalf("%v is certain among three requests", r)
	}
	accept(t, s, 3, "c")
	accept(t, s, 1, "a")
	if r := s.TakeRefused(); !slices.Equal(r, []Refused[string, string]{{"b", "no"}}) {
		t.Errorf("refused: %v", r)
	}
	if list := s.RecordProgress(11); len(list) != 2 {
		t.Errorf("created: %v", list)
	}
}

// As many refusals as requests belong to them in order.
func TestRefusalsInOrder(t *testing.T) {
	s := open("a", "b")
	s.RecordRefusal("first")
	s.RecordRefusal("second")
	if r := s.TakeRefused(); !slices.Equal(r,
		[]Refused[string, string]{{"a", "first"}, {"b", "second"}}) {
		t.Errorf("refused: %v", r)
	}
}

// A watcher that was canceled before its answer has no receiver; an answer without a request is
// reported.
func TestCanceledAndUnknown(t *testing.T) {
	s := open("a")
	requests := s.TakeRequests()
	s.CancelWatcher("a")
	accept(t, s, 1, "")
	if _, _, known := s.RecordCreated(1, 10); known {
		t.Error("a second answer to one request is accepted")
	}
	requests = append(requests, s.TakeRequests()...)
	if len(requests) != 2 || requests[0].Create.ID != 1 || *requests[1].Cancel != 1 {
		t.Errorf("%d requests", len(requests))
	}
}

// A watcher that is canceled before its request was sent is not requested, so the requests that
// wait are bounded.
func TestCanceledBeforeSent(t *testing.T) {
	s := open("a")
	for range 1000 {
		s.RequestWatcher("b", &request.WatchCreate{Key: "b"})
		s.CancelWatcher("b")
	}
	s.RequestWatcher("c", &request.WatchCreate{Key: "c"})
	s.RecordRefusal("no")
	requests := s.TakeRequests()
	if len(requests) != 2 || requests[0].Create.Key != "a" || requests[1].Create.Key != "c" {
		t.Errorf("%d requests wait, want 2", len(requests))
	}
	accept(t, s, requests[0].Create.ID, "a")
	if r := s.TakeRefused(); !slices.Equal(r, []Refused[string, string]{{"c", "no"}}) {
		t.Errorf("refused: %v", r)
	}
}

// A server may assign the id 0.
func TestCancelOfZero(t *testing.T) {
	s := open("a", "b")
	s.TakeRequests()
	accept(t, s, 0, "a")
	s.CancelWatcher("a")
	if w, ok := s.Watcher(0); ok {
		t.Errorf("the id 0 is still that of %q", w)
	}
	if r := s.TakeRequests(); len(r) != 1 || r[0].Progress() || *r[0].Cancel != 0 {
		t.Errorf("requests: %v", r)
	}
	s.CancelWatcher("none")
	if r := s.TakeRequests(); len(r) != 0 {
		t.Errorf("requests: %v", r)
	}
}

// A server that assigns its own ids answers in order.
func TestIDsOfTheServer(t *testing.T) {
	s := open("a", "b")
	accept(t, s, 70, "a")
	accept(t, s, 71, "b")
	if w, ok := s.Watcher(71); w != "b" || !ok {
		t.Errorf("the watcher of 71 is %q, %v", w, ok)
	}
	s = open("a")
	accept(t, s, 2, "a")
	s.RequestWatcher("b", &request.WatchCreate{}) // with another id
	if w, ok := s.Watcher(2); w != "a" || !ok {
		t.Errorf("the watcher of 2 is %q, %v", w, ok)
	}
}

// An answer about progress counts for a watcher from the past only if it is certainly younger than
// the watcher.
func TestProgressOfOlderRequest(t *testing.T) {
	s := New[string, string]()
	progress := func(rev int64, want ...string) {
		t.Helper()
		got := s.RecordProgress(rev)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("progress at %d is that of %v, want %v", rev, got, want)
		}
	}
	s.RequestProgress()
	s.RequestWatcher("past", &request.WatchCreate{Start: 3})
	s.RequestWatcher("future", &request.WatchCreate{Start: 11})
	s.RequestWatcher("now", &request.WatchCreate{})
	accept(t, s, 1, "past")
	accept(t, s, 2, "future")
	progress(10, "future") // now has no answer
	accept(t, s, 3, "now")
	// a second answer is one to a request that came after all of them
	progress(10, "future", "now", "past")
	s = New[string, string]()
	s.RequestProgress()
	s.RequestWatcher("past", &request.WatchCreate{Start: 3})
	accept(t, s, 1, "past")
	s.RequestProgress()
	progress(10)
	progress(10, "past")
	s.RequestWatcher("later", &request.WatchCreate{Start: 3})
	accept(t, s, 2, "later")
	s.RequestProgress() // the server may have left out an answer, then this one is the third
	progress(11, "later", "past")
}

// Requests for progress that wait to be sent are one request.
func TestProgressRequestsAreBounded(t *testing.T) {
	s := open("a")
	for range 1000 {
		s.RequestProgress()
	}
	s.RequestWatcher("b", &request.WatchCreate{})
	s.RequestProgress() // b is not created before the first
	if n := len(s.TakeRequests()); n != 4 {
		t.Errorf("%d requests wait, want 4", n)
	}
	s.RequestProgress()
	if n := len(s.TakeRequests()); n != 1 {
		t.Errorf("%d requests wait, want 1", n)
	}
}

// Requests for progress are one, too, after the request for a watcher between them was withdrawn.
func TestProgressRequestsAroundWithdrawnWatchers(t *testing.T) {
	s := open("a")
	s.TakeRequests()
	for range 1000 {
		s.RequestProgress()
		s.RequestWatcher("b", &request.WatchCreate{Key: "b"})
		s.RequestProgress()
		s.CancelWatcher("b")
	}
	if n := len(s.TakeRequests()); n != 1 {
		t.Errorf("%d requests wait, want 1", n)
	}
	// The merged requests have no answers to wait for.
	s.RequestWatcher("past", &request.WatchCreate{Key: "past", Start: 3})
	accept(t, s, 1, "a")
	accept(t, s, s.last, "past")
	s.RequestProgress()
	if s.RecordProgress(10); !slices.Contains(s.RecordProgress(10), "past") {
		t.Error("the answer to the second request sent is not progress of a watcher created before it")
	}
}
