package main

import (
	"context"
	"errors"
	"io"
)

// interruptible is standard input for a program that notices interrupts itself: a read ends when the context does, and
// what it would have read is lost.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (i interruptible) Read(b []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	done := make(chan result, 1)
	own := make([]byte, len(b)) // b is the caller's again after an interrupt
	go func() {
		n, err := i.r.Read(own)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(b, own[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, errInputInterrupted
	}
}

var errInputInterrupted = &exit{exitInterrupted, errors.New("interrupted")}
