package bucket

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// slowProgram returns the bucket of a program that answers a call after a time, which is not a
// process.
func slowProgram(t *testing.T, answers func(size int64) time.Duration) *program {
	done := make(chan struct{})
	client := newClient(func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go func() {
			defer there.Close()
			in := bufio.NewReader(there)
			for {
				req, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				n, _ := io.Copy(io.Discard, req.Body)
				select {
				case <-time.After(answers(n)):
				case <-done:
					return
				}
				if _, err := io.WriteString(there,
					"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"); err != nil {
					return
				}
			}
		}()
		return here, nil
	})
	t.Cleanup(func() {
		close(done)
		client.CloseIdleConnections()
	})
	p := &program{starting: make(chan struct{}, 1)}
	p.mu.child = &child{client: client}
	return p
}

// The time of a Put grows with the object: over a slow link it takes longer than a call without one
// may.
func TestSlowPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := slowProgram(t, func(size int64) time.Duration { return time.Duration(size) * time.Second / SlowestRate })
		if err := p.Put(context.Background(), "part/x", make([]byte, 32<<20)); err != nil {
			t.Errorf("an object of 32 MiB at %d bytes per second: %v", SlowestRate, err)
		}
	})
}

// A program that does not answer is given up.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := slowProgram(t, func(int64) time.Duration { return time.Hour })
		begun := time.Now()
		if err := p.Put(context.Background(), "part/x", make([]byte, SlowestRate)); !errors.Is(err,
			ErrUnavailable) {
			t.Error(err)
		}
		if took := time.Since(begun); took != callTimeout+time.Second {
			t.Errorf("after %v", took)
		}
		begun = time.Now()
		if err := p.Delete(context.Background(), "part/x"); !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
		if took := time.Since(begun); took != callTimeout {
			t.Errorf("Delete: after %v", took)
		}
	})
}
