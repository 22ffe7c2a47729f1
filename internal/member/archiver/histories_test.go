package archiver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"vigil/internal/bucket"
	"vigil/internal/debugpage"
	"vigil/internal/state/fsm"
	"vigil/internal/state/lineage"
	"vigil/internal/store/archive"
)

// ending is how a history stands to that of the archive.
type ending int

const (
	// wasRestored: a backup was restored, or the cluster began without its data: nothing of the
	// archive's history is left.
	wasRestored ending = iota
	// setBack: the disk is that of an earlier time, up to some entry, or a member that had no more
	// was forced to be alone.
	setBack
	// continued: the process ended, and the disk has what it had.
	continued
)

func (e ending) String() string { return [...]string{"restored", "set back", "continued"}[e] }

// fork returns a world whose only member has the first entries of another one, up to an index.
func (w *world) fork(t *testing.T, index uint64) *world {
	next := newWorld(t, 1)
	w.mu.Lock()
	entries := w.entries[:max(index, 1)-1]
	w.mu.Unlock()
	for _, e := range entries {
		next.mu.Lock()
		next.entries, next.at, next.term = append(next.entries, e),
			append(next.at, time.Now()), e.GetTerm()
		next.mu.Unlock()
		next.members[0].apply(t, e)
	}
	return next
}

// elect begins the next term, with the entry of its leader.
func (w *world) elect() {
	w.mu.Lock()
	w.term++
	w.mu.Unlock()
	w.commit(nil)
}

// writer counts what is written to a bucket.
type writer struct {
	bucket.Bucket
	mu   sync.Mutex
	keys []string
}

func (c *writer) Put(ctx context.Context, key string, data []byte) error {
	err := c.Bucket.Put(ctx, key, data)
	if err == nil || errors.Is(err, bucket.ErrExists) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.keys = append(c.keys, key)
	}
	return err
}

func (c *writer) written() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.keys
}

// TestTwoHistories: a second cluster of the same id, members and terms uses the bucket of a first
// one. Whatever it has of the first one's entries, however far it is with its own when its archiver
// looks first, and however much of its log it has given up then: it extends the archive if and only
// if its history has all of it, and otherwise it writes nothing, now and later, whatever it commits
// and gives up and however often it starts. The archive stays one history: it is restored to the
// first one's state.
func TestTwoHistories(t *testing.T) {
	const archived = 30 // the index at which the first one ends
	for _, end := range []ending{wasRestored, setBack, continued} {
		for _, from := range []uint64{8, 15, 29} { // what a disk that is set back has
			if end != setBack && from != 15 {
				continue
			}
			for _, commits := range []int{0, 1, 10, 40} { // before its archiver looks first
				// of its log that it has given up then
				for _, cut := range []string{"nothing", "half", "all"} {
					name := fmt.Sprintf("%v, from %d, %d commits, log without %s", end,
						from, commits, cut)
					t.Run(name, func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) {
							twoHistories(t, end, from, archived,
								commits, cut)
						})
					})
				}
			}
		}
	}
}

func twoHistories(t *testing.T, end ending, from, archived uint64, commits int, cut string) {
	b := newBucket(t)
	first := newWorld(t, 1)
	defer first.close()
	first.members[0].begin(b, small)
	time.Sleep(time.Second)
	for first.last() < archived {
		first.put("a", fmt.Sprint(first.last()))
		if first.last() == 20 {
			first.elect()
		}
		time.Sleep(200 * time.Millisecond)
	}
	first.awaitArchived(first.members[0], time.Minute)
	first.members[0].end()
	has := map[ending]uint64{wasRestored: 1, setBack: from, continued: first.last()}[end]
	w := first.fork(t, has)
	defer w.close()
	m := w.members[0]
	// Its elections are those of the first one by number.
	w.elect()
	for i := range commits {
		w.put("b", fmt.Sprint(i))
		if i == commits/2 && end == wasRestored {
			w.elect()
		}
	}
	shorten := func() {
		switch cut {
		case "half":
			m.truncate(max(w.last()/2, 2))
		case "all":
			m.truncate(w.last() + 1)
		}
	}
	shorten()
	seen := &writer{Bucket: b}
	for range 3 { // starts
		m.begin(seen, small)
		for range 8 {
			time.Sleep(10 * time.Second)
			w.put("b", "later")
			shorten()
			st := m.a.Status()
			if end != continued && (st.State != debugpage.ArchiveRefused || st.ArchivedIndex > 0 ||
				!strings.Contains(st.Error, "use another bucket")) {
				t.Fatalf("%+v", st)
			}
		}
		m.end()
		w.elect()
	}
	if end != continued {
		if keys := seen.written(); len(keys) > 0 {
			t.Fatalf("%q were written", keys)
		}
		first.verify(b, 1)
		return
	}
	m.begin(seen, small)
	w.awaitBase(b, w.last(), time.Minute)
	w.awaitArchived(m, time.Minute)
	o := readAll(t, b)
	r := restore(t, b, &o, &o.bases[len(o.bases)-1], w.last())
	defer r.close(t)
	w.compare(r)
}

// TestEqualTermsAndLengths: the two histories have the same entries by index and term, and only
// their content differs.
func TestEqualTermsAndLengths(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		first := newWorld(t, 1)
		defer first.close()
		begun := first.last()
		first.members[0].begin(b, small)
		for range 20 {
			time.Sleep(time.Second)
			first.put("a", "b")
		}
		first.awaitArchived(first.members[0], time.Minute)
		image := first.last()
		first.members[0].end()
		first.elect()
		first.members[0].begin(b, small)
		for range 20 {
			time.Sleep(time.Second)
			first.put("a", "b")
		}
		first.awaitArchived(first.members[0], time.Minute)

		second := first.fork(t, image)
		defer second.close()
		second.elect()
		seen := &writer{Bucket: b}
		for range 200 { // and more entries of that term than the archive has
			second.put("c", "d")
		}
		second.members[0].truncate(second.last() + 1)
		second.members[0].begin(seen, small)
		for range 20 {
			time.Sleep(10 * time.Second)
			second.put("c", "d")
		}
		if st := second.members[0].a.Status(); st.State != debugpage.ArchiveRefused ||
			len(seen.written()) > 0 {
			t.Errorf("from %d, image of %d: wrote %q; %+v", begun, image, seen.written(), st)
		}
		first.verify(b, 1)
	})
}

// TestForcedIncarnation: a member that was forced to be a cluster of its own has another
// incarnation, since the other members may go on: it is refused also if it has all that was
// archived.
func TestForcedIncarnation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		first := newWorld(t, 1)
		defer first.close()
		first.members[0].begin(b, small)
		first.put("a", "b")
		first.awaitArchived(first.members[0], time.Minute)
		first.members[0].end()
		w := first.fork(t, first.last())
		defer w.close()
		w.elect()
		w.do(fsm.Request{Claim: &lineage.Claim{Term: w.term, ID: lineage.ID{1}, Restart: true}})
		seen := &writer{Bucket: b}
		w.members[0].begin(seen, small)
		for range 10 {
			time.Sleep(10 * time.Second)
			w.put("a", "c")
			if st := w.members[0].a.Status(); st.State != debugpage.ArchiveRefused ||
				!strings.Contains(st.Error, "incarnation") || len(seen.written()) > 0 {
				t.Fatalf("wrote %q; %+v", seen.written(), st)
			}
		}
	})
}

// TestUnclaimedTerm: entries of a term that its leader has not claimed are not sent, and they are
// once a later leader has.
func TestUnclaimedTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		w := newWorld(t, 2)
		defer w.close()
		for _, m := range w.members {
			m.begin(b, small)
		}
		w.put("a", "b")
		time.Sleep(5 * time.Second)
		w.awaitArchived(w.members[1], time.Minute)
		claimed := w.last()
		// The leader appoints for some seconds more; the entries are of the next one, which nobody
		// can reach.
		w.mu.Lock()
		w.leader = 0
		w.mu.Unlock()
		w.elect()
		for range 10 {
			w.put("a", "c")
			time.Sleep(300 * time.Millisecond)
			for _, x := range readAll(t, b).logs {
				if _, last, ok := archive.ParseLogName(x.Key); ok && last > claimed {
					t.Fatalf("%s was written, and the term begins at %d", x.Key, claimed+1)
				}
			}
		}
		w.mu.Lock()
		w.term++
		w.leader = 1
		w.mu.Unlock()
		w.commit(nil)
		w.awaitArchived(w.members[1], time.Minute)
		w.verify(b, 1)
	})
}

// TestMissingArchive: a bucket that is empty where the cluster has begun an archive, as a directory
// whose file system is not mounted, gets no second one, after a restart too. It is used again when
// it is back. At another address a new archive is begun.
func TestMissingArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		w := newWorld(t, 1)
		defer w.close()
		m := w.members[0]
		m.begin(b, small)
		w.put("a", "b")
		w.awaitArchived(m, time.Minute)
		m.end()
		w.elect()
		away := &writer{Bucket: newBucket(t)}
		f := &faulty{Bucket: away}
		m.begin(f, small)
		for range 20 {
			time.Sleep(5 * time.Second)
			w.put("a", "c")
		}
		if st := m.a.Status(); st.State != debugpage.ArchiveRefused ||
			!strings.Contains(st.Error, "mounted") || len(away.written()) > 0 {
			t.Fatalf("wrote %q; %+v", away.written(), st)
		}
		f.mu.Lock()
		f.Bucket = b
		f.mu.Unlock()
		w.awaitArchived(m, 2*time.Minute)
		w.verify(b, 1)
		m.end()
		other := newBucket(t)
		m.begin(other, small, func(o *Options) { o.Address = "elsewhere" })
		w.put("a", "d")
		w.awaitArchived(m, time.Minute)
		w.verify(other, 1)
	})
}

// TestChangedAddress: the members are restarted one by one with another --archive. Until the last
// of them the present archive goes on, and then the new one.
func TestChangedAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newBucket(t), newBucket(t)
		w := newWorld(t, 3)
		defer w.close()
		for _, m := range w.members {
			m.begin(a, small)
		}
		write := func() {
			for range 30 {
				w.put("k", "v")
				time.Sleep(time.Second)
			}
		}
		write()
		for _, m := range w.members[1:] {
			w.awaitArchived(m, time.Minute)
		}
		for i := range w.members {
			m := w.members[2-i]
			m.end()
			m.begin(b, small, func(o *Options) { o.Address = "new" })
			write()
		}
		w.awaitBase(b, 50, time.Minute)
		for _, m := range w.members {
			w.awaitArchived(m, time.Minute)
		}
		w.verify(b, 1)
	})
}

// TestLeaderWithoutArchive: the leader has no --archive, and others have.
func TestLeaderWithoutArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(t)
		w := newWorld(t, 3)
		defer w.close()
		w.members[0].begin(nil, small, func(o *Options) { o.Open = nil })
		w.members[1].begin(nil, small, func(o *Options) { o.Open = nil })
		w.members[2].begin(b, small)
		for range 20 {
			w.put("k", "v")
			time.Sleep(time.Second)
		}
		w.awaitArchived(w.members[2], time.Minute)
		w.verify(b, 1)
		// Without any archive nothing is proposed.
		w.members[2].end()
		w.elect()
		before := w.last()
		time.Sleep(time.Minute)
		if last := w.last(); last != before {
			t.Errorf("%d entries without an archive", last-before)
		}
	})
}

// TestNobodyCanArchive: if no member can archive, the leader says why.
func TestNobodyCanArchive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		defer w.close()
		w.members[0].begin(nil, small, func(o *Options) { o.Open = nil })
		w.members[1].begin(&faulty{Bucket: newBucket(t),
			before: func(_ int, op,
				key string) error {
				return fmt.Errorf("%s %s: %w", op, key, bucket.ErrDenied)
			}}, small)
		time.Sleep(time.Minute)
		st := w.members[0].a.Status()
		for _, want := range []string{"no member can archive", "member 1: it has no --archive",
			"member 2: reading the identity"} {
			if !strings.Contains(st.Error, want) {
				t.Errorf("%q is not in %q", want, st.Error)
			}
		}
		if st.FailingSeconds < 20 {
			t.Errorf("%+v", st)
		}
	})
}

// TestForcedWhileArchiving: a session that has begun ends when the incarnation does: a member that
// is being forced to be a cluster of its own may still be appointed by a leader of the old one.
func TestForcedWhileArchiving(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &writer{Bucket: newBucket(t)}
		w := newWorld(t, 1)
		defer w.close()
		w.members[0].begin(seen, small)
		w.put("a", "b")
		w.awaitArchived(w.members[0], time.Minute)
		w.elect()
		w.do(fsm.Request{Claim: &lineage.Claim{Term: w.term, ID: lineage.ID{1}, Restart: true}})
		synctest.Wait()
		before := len(seen.written())
		for range 10 {
			w.put("a", "c")
			time.Sleep(10 * time.Second)
		}
		if st := w.members[0].a.Status(); st.State != debugpage.ArchiveRefused ||
			!strings.Contains(st.Error, "incarnation") || len(seen.written()) > before {
			t.Errorf("wrote %q; %+v", seen.written()[before:], st)
		}
	})
}
