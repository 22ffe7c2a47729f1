package grpcconn

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// Call makes one call and waits for its single answer, which the caller owns. A context that ends
// first resets the call. It must not be called by a handler.
func (c *Conn) Call(ctx context.Context, method string, msg []byte) ([]byte, error) {
	w := &waiter{ended: make(chan struct{})}
	if msg == nil {
		msg = []byte{}
	}
	id, err := c.Open(method, w, msg, true)
	if err != nil {
		return nil, err
	}
	if err := c.Flush(); err != nil {
		return nil, err
	}
	select {
	case <-w.ended:
	case <-ctx.Done():
		c.Cancel(id)
		// The reader does the rest; the next call returns the connection's error.
		_ = c.Flush()
		return nil, ctx.Err()
	}
	if err := w.status.Err(); err != nil {
		return nil, err
	}
	if w.n != 1 {
		return nil, fmt.Errorf("%s: %d answers", method, w.n)
	}
	return w.answer, nil
}

type waiter struct {
	ended  chan struct{}
	answer []byte
	n      int
	status Status
}

func (w *waiter) Message(_ time.Time, msg []byte) {
	w.answer = bytes.Clone(msg)
	w.n++
}

func (w *waiter) End(_ time.Time, s Status) {
	w.status = s
	close(w.ended)
}
