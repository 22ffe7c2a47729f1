package mvcc

import (
	"strings"
	"sync"
)

const (
	// maxPages is the number of places in lists that are remembered. A list needs its place only
	// until its next page.
	maxPages = 4096
	// maxPageKey is the size in bytes of the keys above which a place is not remembered.
	maxPageKey = 2048
)

// places remembers how many keys a list has left behind the page it has come to, for lists at a
// revision that no pinned tree has counts for. Only the first of their pages visits the keys to count
// them then. What is remembered stays true: a revision does not change.
type places struct {
	mu struct {
		sync.Mutex
		left map[place]int64
		ring []place // the keys of left, in the order of their making from next on
		next int
	}
}

// place is the range [from, to) at a revision.
type place struct {
	at       int64
	from, to string
}

// add remembers the number of keys behind last in [last, to).
func (p *places) add(at int64, last, to string, left int64) {
	if len(last)+len(to) > maxPageKey {
		return
	}
	n := place{at, last + "\x00", strings.Clone(to)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.mu.left[n]; ok {
		return
	}
	if p.mu.left == nil {
		p.mu.left = map[place]int64{}
	}
	if len(p.mu.ring) < maxPages {
		p.mu.ring = append(p.mu.ring, n)
	} else {
		delete(p.mu.left, p.mu.ring[p.mu.next])
		p.mu.ring[p.mu.next] = n
		p.mu.next = (p.mu.next + 1) % maxPages
	}
	p.mu.left[n] = left
}

// find returns the number of keys of [from, to) at a revision if it is known.
func (p *places) find(at int64, from, to string) (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.mu.left[place{at, from, to}]
	return n, ok
}
