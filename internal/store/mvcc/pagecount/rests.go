package pagecount

import (
	"strings"
	"sync"
)

const (
	// maxRests is the number of remembered rests. A list needs its rest only until its next page.
	maxRests = 4096
	// maxRestKeys is the largest size in bytes of both bounds of a remembered rest.
	maxRestKeys = 2048
)

// Rests remembers how many keys of a list remain after its last page, for lists at a revision for
// which no kept tree has counts. A rest stays valid because a revision does not change. It is safe
// for concurrent use.
type Rests struct {
	mu struct {
		sync.Mutex
		left map[rest]int64
		ring []rest // the keys of left, the oldest at next
		next int
	}
}

// rest is the range [from, to) at a revision.
type rest struct {
	at       int64
	from, to string
}

// Remember remembers the number of keys in [last, to) after last.
func (p *Rests) Remember(at int64, last, to string, left int64) {
	if len(last)+len(to) > maxRestKeys {
		return
	}
	n := rest{at, last + "\x00", strings.Clone(to)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.mu.left[n]; ok {
		return
	}
	if p.mu.left == nil {
		p.mu.left = map[rest]int64{}
	}
	if len(p.mu.ring) < maxRests {
		p.mu.ring = append(p.mu.ring, n)
	} else {
		delete(p.mu.left, p.mu.ring[p.mu.next])
		p.mu.ring[p.mu.next] = n
		p.mu.next = (p.mu.next + 1) % maxRests
	}
	p.mu.left[n] = left
}

// Find returns the number of keys in [from, to) at a revision if it is known.
func (p *Rests) Find(at int64, from, to string) (int64, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n, ok := p.mu.left[rest{at, from, to}]
	return n, ok
}
