package proc

import (
	"bytes"
	"strings"
	"sync"
)

// logBytes limits the stored output of a process.
const logBytes = 4 << 20

// Log collects the output of a process and lets a test wait for a line.
type Log struct {
	mu struct {
		sync.Mutex
		buf  bytes.Buffer
		wait []waiter
	}
}

type waiter struct {
	enough func(written []byte) bool
	found  chan struct{}
}

// Write appends to the log. It never fails; output above a bound is dropped.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.buf.Len()+len(p) <= logBytes {
		l.mu.buf.Write(p)
	}
	kept := l.mu.wait[:0]
	for _, w := range l.mu.wait {
		if w.enough(l.mu.buf.Bytes()) {
			close(w.found)
			continue
		}
		kept = append(kept, w)
	}
	l.mu.wait = kept
	return len(p), nil
}

// Wait returns a channel that is closed once text has been written.
func (l *Log) Wait(text string) <-chan struct{} {
	return l.wait(func(written []byte) bool { return bytes.Contains(written, []byte(text)) })
}

// Lines returns a channel that is closed once n whole lines have been written.
func (l *Log) Lines(n int) <-chan struct{} {
	return l.wait(func(written []byte) bool { return bytes.Count(written, []byte("\n")) >= n })
}

func (l *Log) wait(enough func([]byte) bool) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := make(chan struct{})
	if enough(l.mu.buf.Bytes()) {
		close(found)
		return found
	}
	l.mu.wait = append(l.mu.wait, waiter{enough, found})
	return found
}

// String returns what has been written.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.buf.String()
}

// Tail returns the last n lines.
func (l *Log) Tail(n int) string {
	lines := strings.Split(strings.TrimRight(l.String(), "\n"), "\n")
	if len(lines) > n {
		lines = lines[len(lines)-n:]
	}
	return strings.Join(lines, "\n")
}
