package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

// change is an acknowledged change of a key: the number in its value, 0 for a deletion, and when it
// was sent and acknowledged.
type change struct {
	revision int64
	number   int
	sent, at time.Time
}

// recorder writes and remembers what was acknowledged. Each key belongs to one writer.
type recorder struct {
	g *group
	// up are the members that the test has not killed.
	up    []atomic.Bool
	addrs []string
	stop  chan struct{}
	done  sync.WaitGroup

	mu      sync.Mutex
	changes map[string][]change // in the order of their revisions
	tried   map[string]int      // the newest number that was tried
	unsure  map[string]bool     // keys with a deletion that got no answer
	last    int64               // the newest revision that was acknowledged
	count   int
	idle    int      // acknowledged deletions of keys that were not there, which are no changes
	pending []change // those that are not known to be archived
}

func newRecorder(g *group) *recorder {
	r := &recorder{g: g, up: make([]atomic.Bool, len(g.list)), stop: make(chan struct{}),
		changes: map[string][]change{}, tried: map[string]int{}, unsure: map[string]bool{}}
	for i := range r.up {
		r.up[i].Store(true)
		r.addrs = append(r.addrs, g.list[i].Addr())
	}
	return r
}

// begin starts writers that write a number of changes in a second, until end.
func (r *recorder) begin(rate int) {
	writers := max(rate/10, 10)
	for w := range writers {
		r.done.Go(func() { r.write(w, time.Second*time.Duration(writers)/time.Duration(rate)) })
	}
}

func (r *recorder) end() {
	close(r.stop)
	r.done.Wait()
}

// paces returns how many changes there were in each second between two times.
func (r *recorder) paces(from, to time.Time) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]int, to.Sub(from)/time.Second)
	for _, list := range r.changes {
		for _, c := range list {
			if second := int(c.at.Sub(from) / time.Second); second >= 0 && second < len(out) {
				out[second]++
			}
		}
	}
	return out
}

// kill ends members at once, and restart runs one again.
func (r *recorder) kill(list ...*member) {
	for i, m := range r.g.list {
		for _, k := range list {
			if m == k {
				r.up[i].Store(false)
			}
		}
	}
	var wg sync.WaitGroup
	for _, m := range list {
		wg.Go(m.Kill)
	}
	wg.Wait()
}

func (r *recorder) restart(m *member) {
	m.Restart()
	for i := range r.g.list {
		if r.g.list[i] == m {
			r.up[i].Store(true)
		}
	}
}

// any returns the client of a member that runs.
func (r *recorder) any(random *rand.Rand) *clientv3.Client {
	for {
		i := random.IntN(len(r.up))
		if r.up[i].Load() {
			return r.g.list[i].client
		}
		select {
		case <-r.stop:
			return r.g.list[i].client
		default:
		}
	}
}

// write writes one change after the other. Each is due at a time of its own, so that one that was
// slow is made up for.
func (r *recorder) write(writer int, interval time.Duration) {
	random := rand.New(rand.NewPCG(uint64(writer), 1))
	due := time.Now().Add(time.Duration(random.Int64N(int64(interval))))
	for n := 1; ; n++ {
		if late := time.Since(due); late > time.Second {
			due = time.Now() // as after an election
		}
		select {
		case <-r.stop:
			return
		case <-time.After(time.Until(due)):
		}
		due = due.Add(interval)
		key := fmt.Sprintf("w%d-%d", writer, random.IntN(50))
		c := r.any(random)
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		sent := time.Now()
		r.mu.Lock()
		r.tried[key] = n
		r.mu.Unlock()
		number, revision := n, int64(0)
		if random.IntN(8) == 0 {
			number = 0
			switch resp, err := c.Delete(ctx, key); {
			case err != nil:
				r.mu.Lock()
				r.unsure[key] = true
				r.mu.Unlock()
			case resp.Deleted > 0:
				revision = resp.Header.Revision
			default:
				r.mu.Lock()
				r.idle++
				r.mu.Unlock()
			}
		} else if resp, err := c.Put(ctx, key,
			strconv.Itoa(n)+" "+strings.Repeat("x", 200)); err == nil {
			revision = resp.Header.Revision
		}
		cancel()
		if revision > 0 {
			done := change{revision, number, sent, time.Now()}
			r.mu.Lock()
			r.changes[key] = append(r.changes[key], done)
			r.last = max(r.last, revision)
			r.count++
			r.pending = append(r.pending, done)
			r.mu.Unlock()
		}
	}
}

// mark returns the newest revision that was acknowledged.
func (r *recorder) mark() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last
}

// exposed returns how old the oldest acknowledged change is that was not archived up to a revision.
func (r *recorder) exposed(archived int64) (age time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	kept := r.pending[:0]
	for _, c := range r.pending {
		if c.revision > archived {
			kept = append(kept, c)
			age = max(age, time.Since(c.at))
		}
	}
	r.pending = kept
	return age
}

// lost returns how long before an end the oldest change was acknowledged that is above a revision.
func (r *recorder) lost(revision int64, end time.Time) (age time.Duration) {
	for _, list := range r.changes {
		for _, c := range list {
			if c.revision > revision {
				age = max(age, end.Sub(c.at))
			}
		}
	}
	return age
}

// around returns the newest revision that was acknowledged before a time, and the smallest one that
// was sent after another.
func (r *recorder) around(before, after time.Time) (least, most int64) {
	most = 1 << 62
	for _, list := range r.changes {
		for _, c := range list {
			if c.at.Before(before) {
				least = max(least, c.revision)
			}
			if c.sent.After(after) {
				most = min(most, c.revision)
			}
		}
	}
	return least, most
}

// check compares a store with what was acknowledged up to a revision. What got no answer may be
// there or not.
func (r *recorder) check(t testing.TB, c *clientv3.Client, revision int64) {
	t.Helper()
	resp, err := c.Get(proc.Context(t), "w", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]int{}
	for _, kv := range resp.Kvs {
		number, _, _ := strings.Cut(string(kv.Value), " ")
		if have[string(kv.Key)], err = strconv.Atoi(number); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wrong := 0
	for key, list := range r.changes {
		want, acknowledged := 0, map[int]bool{}
		for _, c := range list {
			acknowledged[c.number] = true
			if c.revision <= revision {
				want = c.number
			}
		}
		// A put without an answer has a number that was never acknowledged.
		if got := have[key]; got != want && (acknowledged[got] || got > r.tried[key]) && got != 0 {
			t.Errorf("%s has number %d at revision %d, want %d", key, got, revision, want)
			wrong++
		} else if got == 0 && want != 0 && !r.unsure[key] {
			t.Errorf("%s is missing at revision %d, want number %d", key, revision, want)
			wrong++
		}
		if wrong > 10 {
			t.Fatal("and so on")
		}
	}
}
