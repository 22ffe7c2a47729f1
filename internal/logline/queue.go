package logline

import (
	"fmt"
	"io"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

const (
	// MaxQueued limits the bytes of lines that wait for an output. Lines above it are dropped and
	// counted.
	MaxQueued = 4 << 20
	// flushTimeout is how long Close, Flush and Reopen wait for an output that takes no lines.
	flushTimeout = time.Second
)

// queue is an output with its own writing goroutine: callers that log must not wait for a full
// pipe, a stopped terminal or a hanging disk.
type queue struct {
	out output
	// lost returns the line that reports a number of dropped lines.
	lost func(n uint64) []byte
	// using guards the use of out.
	using sync.Mutex

	mu struct {
		sync.Mutex
		lines   []queued
		bytes   int
		lost    uint64 // lines since the last report
		writing bool
		closed  bool
	}
	changed sync.Cond
}

type queued struct {
	level zapcore.Level
	line  []byte
}

func newQueue(out output, lost func(uint64) []byte) *queue {
	q := &queue{out: out, lost: lost}
	q.changed.L = &q.mu
	go q.run()
	return q
}

// write implements output. It does not block.
func (q *queue) write(level zapcore.Level, line []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.mu.closed:
		return
	case q.mu.bytes+len(line) > MaxQueued:
		q.mu.lost++
		return
	}
	q.mu.bytes += len(line)
	q.mu.lines = append(q.mu.lines, queued{level, append([]byte(nil), line...)})
	q.changed.Broadcast()
}

func (q *queue) run() {
	for {
		lines, lost := q.takeLines()
		if lines == nil {
			return
		}
		q.using.Lock()
		for i, l := range lines {
			q.out.write(l.level, l.line)
			q.written(len(l.line))
			lines[i].line = nil
		}
		if lost > 0 {
			q.out.write(zapcore.WarnLevel, q.lost(lost))
		}
		q.using.Unlock()
	}
}

// takeLines waits for lines and returns them, and the number of lines dropped after them. After
// close it returns nothing.
func (q *queue) takeLines() (lines []queued, lost uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.writing = false
	q.changed.Broadcast()
	for len(q.mu.lines) == 0 && !q.mu.closed {
		q.changed.Wait()
	}
	lines, lost = q.mu.lines, q.mu.lost
	q.mu.lines, q.mu.lost, q.mu.writing = nil, 0, len(lines) > 0
	return lines, lost
}

func (q *queue) written(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.bytes -= n
}

// flush waits until all lines are written, for flushTimeout at most. The error has the number of
// bytes left.
func (q *queue) flush() error {
	late := false
	timer := time.AfterFunc(flushTimeout, func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		late = true
		q.changed.Broadcast()
	})
	defer timer.Stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.mu.lines) > 0 || q.mu.writing {
		if late {
			return fmt.Errorf("a log output has taken no line for %v; %d bytes of lines wait",
				flushTimeout, q.mu.bytes)
		}
		q.changed.Wait()
	}
	return nil
}

// reopen implements reopener. Lines that were logged before go to the old file.
func (q *queue) reopen() error {
	if err := q.flush(); err != nil {
		return err
	}
	f, ok := q.out.(reopener)
	if !ok {
		return nil
	}
	q.using.Lock()
	defer q.using.Unlock()
	return f.reopen()
}

// close implements reopener. An output that takes no lines stays open.
func (q *queue) close() error {
	err := q.flush()
	q.mu.Lock()
	q.mu.closed = true
	q.changed.Broadcast()
	q.mu.Unlock()
	if f, ok := q.out.(reopener); ok && err == nil {
		q.using.Lock()
		defer q.using.Unlock()
		return f.close()
	}
	return err
}

// Writer passes lines to another writer on a goroutine of its own.
type Writer struct{ q *queue }

// NewWriter returns a Writer to w.
func NewWriter(w io.Writer) *Writer {
	return &Writer{newQueue(&stream{Writer: w},
		func(n uint64) []byte { return fmt.Appendf(nil, "warning: %d lines were left out\n", n) })}
}

// Write implements io.Writer. It never blocks, and never fails.
func (w *Writer) Write(line []byte) (int, error) {
	w.q.write(zapcore.InfoLevel, line)
	return len(line), nil
}

// Flush waits until all lines are written, for a second at most.
func (w *Writer) Flush() error { return w.q.flush() }
