package gateway

import (
	"context"
	"sync"
	"time"
)

const (
	// writeTimeout is how long writing less than writeSize bytes of an answer may take.
	writeTimeout = 30 * time.Second
	writeSize    = 64 << 10
)

// pace gives each piece of an answer a deadline, until a context ends.
type pace struct {
	deadline func(time.Time) error // of the connection's writes
	stop     func() bool

	mu struct {
		sync.Mutex
		over bool
	}
}

func (p *pace) startPacing(ctx context.Context, deadline func(time.Time) error) {
	p.deadline = deadline
	p.stop = context.AfterFunc(ctx, p.cutWrite)
}

// cutWrite ends a write that is under way.
func (p *pace) cutWrite() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.over {
		p.mu.over = true
		_ = p.deadline(time.Unix(1, 0))
	}
}

// setDeadlineFor sets the deadline of the next n bytes: writeTimeout, and a second for each further
// writeSize bytes. It returns false after the end of the context. A writer without deadlines has no
// connection.
func (p *pace) setDeadlineFor(n int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.over {
		return false
	}
	_ = p.deadline(time.Now().Add(writeTimeout + time.Duration(n/writeSize)*time.Second))
	return true
}

// clearDeadline removes the deadline: HTTP/2 ends a stream at its deadline even when nothing is
// written.
func (p *pace) clearDeadline() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.over {
		_ = p.deadline(time.Time{})
	}
}

// writePieces writes pieces of up to size bytes. After the end of the context it drops bytes
// without an error, because an error would be logged.
func (p *pace) writePieces(b []byte, size int, piece func([]byte) (int, error)) (n int, err error) {
	defer p.clearDeadline()
	for {
		next := b[:min(len(b), size)]
		if !p.setDeadlineFor(len(next)) {
			return n + len(b), nil
		}
		k, err := piece(next)
		n += k
		if b = b[k:]; err != nil || len(b) == 0 {
			return n, err
		}
	}
}

// release ends the pacing: it sets no deadline from then on.
func (p *pace) release() {
	p.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.over = true
}
