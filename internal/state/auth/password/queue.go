package password

import (
	"context"
	"slices"
	"sync"

	"vigil/internal/kv"
)

// The ways in which waiting calls compete with each other: each way has a line for each host,
// connection or user name.
const (
	byHost = iota
	byConnection
	byUser
	ways
)

// queue lets a few calls run concurrently, and the others wait. It is safe for concurrent use.
//
// Waiting calls take turns. One turn goes to the next host, and within the host to the next of its
// connections; the turn after it goes to the next user name. So neither a client with many calls,
// under whatever names, nor many clients of one user delay others for long. The name in the call
// counts, whether or not such a user exists.
type queue struct {
	room, limit int // for running and for waiting calls

	mu struct {
		sync.Mutex
		running int
		waiting []*call // in the order of their arrival
		lines   [ways]map[any]*line
		// clock is the time of the last turn, for each way.
		clock [ways]uint64
		// user is set if the next turn goes to a user name.
		user bool
	}
}

// line is a host, connection or user name with waiting calls.
type line struct {
	// time is the time of its next turn: the line with the least time is next.
	time uint64
	n    int // waiting calls
}

type call struct {
	keys  [ways]any
	lines [ways]*line
	// turn is closed when the call may run, or when it was dropped.
	turn    chan struct{}
	dropped bool // set before turn is closed
}

func newQueue(room, limit int) *queue {
	q := &queue{room: room, limit: limit}
	for w := range q.mu.lines {
		q.mu.lines[w] = map[any]*line{}
	}
	return q
}

// run calls f when it is the turn of the call. Errors: kv.ErrTooManyRequests, and from ctx and f.
func (q *queue) run(ctx context.Context, user string, f func() error) error {
	if c := q.join(kv.OriginOf(ctx), user); c != nil {
		select {
		case <-c.turn:
		case <-ctx.Done():
			q.quit(c)
			return ctx.Err()
		}
		if c.dropped {
			return kv.ErrTooManyRequests
		}
	}
	defer q.leave()
	return f()
}

// join returns a call that must wait, nil if it may run.
func (q *queue) join(from kv.Origin, user string) *call {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.running < q.room {
		q.mu.running++ // nobody waits
		return nil
	}
	c := &call{keys: [ways]any{from.Host, from.Connection, user}, turn: make(chan struct{})}
	for w, key := range c.keys {
		l := q.mu.lines[w][key]
		if l == nil {
			l = &line{time: q.mu.clock[w] + 1}
			q.mu.lines[w][key] = l
		}
		l.n++
		c.lines[w] = l
	}
	q.mu.waiting = append(q.mu.waiting, c)
	if len(q.mu.waiting) > q.limit {
		d := q.crowded()
		q.remove(d)
		d.dropped = true
		close(d.turn)
	}
	return c
}

// crowded returns the call to drop: the last of the calls that share host, connection and user name
// with the most waiting calls. The caller holds mu.
func (q *queue) crowded() (last *call) {
	most := 0
	for _, c := range q.mu.waiting {
		if n := c.lines[byHost].n + c.lines[byConnection].n + c.lines[byUser].n; n >= most {
			last, most = c, n
		}
	}
	return last
}

// remove removes a waiting call and reports whether it was waiting. The caller holds mu.
func (q *queue) remove(c *call) bool {
	i := slices.Index(q.mu.waiting, c)
	if i < 0 {
		return false
	}
	q.mu.waiting = slices.Delete(q.mu.waiting, i, i+1)
	for w, l := range c.lines {
		if l.n--; l.n == 0 {
			delete(q.mu.lines[w], c.keys[w])
		}
	}
	return true
}

// quit ends a call whose context has ended.
func (q *queue) quit(c *call) {
	q.mu.Lock()
	waited := q.remove(c) || c.dropped
	q.mu.Unlock()
	if !waited {
		q.leave()
	}
}

// leave ends a running call.
func (q *queue) leave() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.running--
	if len(q.mu.waiting) == 0 {
		return
	}
	c := q.next()
	for w, l := range c.lines {
		if w == byUser == q.mu.user {
			q.mu.clock[w] = l.time
		}
		l.time++
	}
	q.mu.user = !q.mu.user
	q.remove(c)
	q.mu.running++
	close(c.turn)
}

// next returns the call whose turn it is. The caller holds mu.
func (q *queue) next() *call {
	first := q.mu.waiting[0]
	for _, c := range q.mu.waiting[1:] {
		var before bool
		switch a, b := &c.lines, &first.lines; {
		case q.mu.user:
			before = a[byUser].time < b[byUser].time
		case a[byHost] != b[byHost]:
			before = a[byHost].time < b[byHost].time
		default:
			before = a[byConnection].time < b[byConnection].time
		}
		if before {
			first = c
		}
	}
	return first
}
