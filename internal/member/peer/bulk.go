package peer

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// MaxBulkMeta bounds the metadata of a bulk transfer, in bytes.
const MaxBulkMeta = 32 << 10

const trailerSize = 12 // length u64, checksum u32

// SendBulk sends everything that r returns until io.EOF to a member, on a separate stream. It
// returns nil after the member's BulkReceiver has returned nil. r sets the pace: a slow receiver
// makes the reads of r wait, and a slow r slows the transfer. Only one transfer to a member runs at
// a time; a second one fails with CodeBusy. An error of r is reported to the receiver. When ctx
// ends, the transfer ends as soon as r returns. That does not interrupt the receiver's own work.
func (t *Transport) SendBulk(ctx context.Context, to uint64, meta []byte, r io.Reader) error {
	if len(meta) > MaxBulkMeta {
		return refuse(CodeTooLarge, "metadata of %d bytes, the most is %d", len(meta), MaxBulkMeta)
	}
	p := t.remote(to)
	if p == nil {
		return fmt.Errorf("transfer to member %x: %w", to, ErrNotMember)
	}
	p.mu.Lock()
	busy := p.mu.sending
	p.mu.sending = true
	p.mu.Unlock()
	if busy {
		return refuse(CodeBusy, "a transfer to member %x is under way", to)
	}
	done := make(chan error, 1)
	began := time.Now()
	p.stats.bulkSending.Add(1)
	if !t.spawn(func() { done <- p.sendBulk(ctx, meta, r) }) {
		done <- ErrClosed
	}
	err := <-done
	p.stats.bulkSending.Add(-1)
	p.stats.bulkSent.ended(err, time.Since(began))
	p.mu.Lock()
	p.mu.sending = false
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("transfer to member %x: %w", to, err)
	}
	return nil
}

func (p *remote) sendBulk(ctx context.Context, meta []byte, r io.Reader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gone := context.AfterFunc(p.ctx, func() { cancel(ErrClosed) })
	defer gone()
	l, err := p.t.dialMember(ctx, p, kindBulk)
	if err != nil {
		p.noteRefusal(err)
		return err
	}
	stop := context.AfterFunc(ctx, func() { l.end(context.Cause(ctx)) })
	defer stop()
	s := bulkSender{l: l, stats: &p.stats}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.end(ErrClosed)
	wg.Go(func() { l.pulse(ctx, framePing) })
	wg.Go(func() { l.end(s.listen()) })
	sent := make(chan struct{})
	wg.Go(func() { s.watchProgress(sent, p.t.o.BulkStall) })
	err = s.send(meta, r)
	close(sent)
	if err != nil {
		// The receiver's result explains more than a failed write.
		if !s.failedSource {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				err = ErrStalled
			}
			l.end(err)
			err = l.reason()
		}
	} else {
		err = l.reason()
	}
	if err == errAccepted {
		if s.complete {
			return nil
		}
		err = refuse(CodeMalformed, "accepted before the end")
	}
	return err
}

// errAccepted ends a transfer that the receiver accepted.
var errAccepted = errors.New("accepted")

// bulkSender is one transfer on the side that sends.
type bulkSender struct {
	l            *link
	stats        *stats
	progress     atomic.Uint64
	failedSource bool // r returned an error
	complete     bool // the trailer was written
}

// send writes the transfer.
func (s *bulkSender) send(meta []byte, r io.Reader) error {
	if err := s.l.send(appendFrame(nil, frameMeta, 0, meta)); err != nil {
		return err
	}
	var length uint64
	var sum uint32
	buf := make([]byte, frameHeader+maxFrame)
	for {
		n, err := io.ReadFull(r, buf[frameHeader:])
		if n > 0 {
			frame := buf[:frameHeader+n]
			sealFrame(frame, frameData, 0)
			sum = crc32.Update(sum, castagnoli, frame[frameHeader:])
			length += uint64(n)
			if err := s.l.send(frame); err != nil {
				return err
			}
			s.progress.Add(uint64(n))
			s.stats.bulkSentBytes.Add(uint64(n))
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			s.failedSource = true
			s.l.endWith(refuse(CodeAborted, "the sender could not read: %v", err))
			return err
		}
	}
	s.complete = true
	return s.l.send(appendFrame(nil, frameEnd, 0, appendTrailer(nil, length, sum)))
}

func appendTrailer(b []byte, length uint64, sum uint32) []byte {
	return le.AppendUint32(le.AppendUint64(b, length), sum)
}

// listen reads until the receiver's result, and returns it.
func (s *bulkSender) listen() error {
	for {
		t, payload, err := s.l.in.next()
		if err != nil {
			return err
		}
		if t == frameResult {
			e, err := decodeReason(payload)
			switch {
			case err != nil:
				return err
			case e != nil:
				return e
			}
			return errAccepted
		}
		known, err := s.l.handleCommon(t, payload, nil)
		if err == nil && !known {
			err = refuse(CodeMalformed, "frame of type %d on a bulk transfer", t)
		}
		if err != nil {
			return err
		}
	}
}

// watchProgress ends a transfer that makes no progress, until everything is sent.
func (s *bulkSender) watchProgress(sent chan struct{}, stall time.Duration) {
	tick := time.NewTicker(stall)
	defer tick.Stop()
	last := uint64(0)
	for first := true; ; first = false {
		select {
		case <-sent:
			return
		case <-s.l.down.done:
			return
		case <-tick.C:
			now := s.progress.Load()
			if now == last && !first {
				s.l.end(ErrStalled)
				return
			}
			last = now
		}
	}
}

// receiveBulk hands one transfer to its receiver and reports the result to the sender.
func (t *Transport) receiveBulk(p *remote, l *link) error {
	began := time.Now()
	p.stats.bulkReceiving.Add(1)
	err := t.receiveBulk1(p, l)
	p.stats.bulkReceiving.Add(-1)
	p.stats.bulkReceived.ended(err, time.Since(began))
	return err
}

func (t *Transport) receiveBulk1(p *remote, l *link) error {
	b := bulkReader{l: l, bytes: &p.stats.bulkReceivedBytes}
	typ, meta, err := b.next()
	if err != nil {
		return err
	}
	if typ != frameMeta || len(meta) > MaxBulkMeta {
		return refuse(CodeMalformed,
			"bulk transfer that begins with a frame of type %d and %d bytes", typ, len(meta))
	}
	meta = append([]byte(nil), meta...)
	err = t.receivers.Bulk.ReceiveBulk(p.ctx, p.id, meta, &b)
	if err == nil && b.err != io.EOF {
		if err = b.err; err == nil {
			err = refuse(CodeFailed, "the receiver did not read to the end")
		}
	}
	var result *Error
	if err != nil {
		result = asError(err)
	}
	if b.err != nil && b.err != io.EOF {
		return b.err
	}
	b.err = ErrClosed
	if e := l.sendFrame(frameResult, encodeReason(result)); e != nil {
		return errors.Join(err, e)
	}
	// The sender closes the stream when it has the result. Closing it here could lose the result.
	for {
		typ, _, e := l.in.next()
		if e != nil || typ == frameClose {
			return err
		}
	}
}

// bulkReader is the reader that a receiver gets. It belongs to the goroutine of the transfer.
type bulkReader struct {
	l      *link
	bytes  *atomic.Uint64
	rest   []byte // of the last data frame
	length uint64
	sum    uint32
	err    error // io.EOF when the transfer is whole
}

// Close implements io.Closer.
func (b *bulkReader) Close() error {
	b.l.end(ErrClosed)
	return nil
}

// next returns the next frame that is not a sign of life.
func (b *bulkReader) next() (frameType, []byte, error) {
	for {
		t, payload, err := b.l.in.next()
		if err != nil {
			return 0, nil, unexpected(err)
		}
		known, err := b.l.handleCommon(t, payload, nil)
		if err != nil {
			return 0, nil, err
		}
		if !known {
			return t, payload, nil
		}
	}
}

// Read implements io.Reader.
func (b *bulkReader) Read(out []byte) (int, error) {
	for len(b.rest) == 0 && b.err == nil {
		b.err = b.advance()
	}
	if len(b.rest) == 0 {
		return 0, b.err
	}
	n := copy(out, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}

// advance reads the next data frame or the trailer. It returns io.EOF after a correct trailer.
func (b *bulkReader) advance() error {
	t, payload, err := b.next()
	if err != nil {
		return err
	}
	switch {
	case t == frameData:
		b.rest = payload
		b.length += uint64(len(payload))
		b.sum = crc32.Update(b.sum, castagnoli, payload)
		b.bytes.Add(uint64(len(payload)))
		return nil
	case t != frameEnd || len(payload) != trailerSize:
		return refuse(CodeMalformed, "frame of type %d with %d bytes in a bulk transfer",
			t, len(payload))
	case le.Uint64(payload) != b.length:
		return refuse(CodeCorrupt, "%d bytes of a bulk transfer arrived, %d were sent", b.length,
			le.Uint64(payload))
	case le.Uint32(payload[8:]) != b.sum:
		return refuse(CodeCorrupt, "checksum of a bulk transfer of %d bytes", b.length)
	}
	return io.EOF
}
