package h2

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

const (
	// lingerTime is how long a connection is read after the last output. Closing it at once could
	// destroy that output.
	lingerTime = time.Second
	// reasonTime is how long writing the reason of a failure may take. On a busy machine the writer
	// may wait for a processor.
	reasonTime = 5 * time.Second
	// drainTime is how long a draining connection waits for the client's acknowledgement. A client
	// without a handshake gets lateTime.
	drainTime = 5 * time.Second
	lateTime  = 200 * time.Millisecond
	// maxControl is how many bytes of frames without data may be queued before the reader waits for
	// the writer.
	maxControl = 64 << 10
)

// link has what the reader, the writer and the streams of a connection share.
type link struct {
	o      *Options
	socket socket
	values context.Context // of all requests; set by Serve

	lastRead atomic.Int64 // in nanoseconds after epoch
	// unread is how many bytes the client occupies without a handler's consent: requests without a
	// handler, bodies that nobody has taken, answers that the client does not read.
	unread atomic.Int64

	mu struct {
		sync.Mutex
		// signals that the writer has written, a handler has ended, or the connection is lost
		changed sync.Cond

		state    connState
		err      error // why the connection has ended or will end
		table    table
		out      scheduler
		promises promises

		writing  bool            // there is a writer
		inUse    mem.BufferSlice // buffers that were dropped while a write may refer to them
		waking   bool            // WakeAll is about to write
		costly   bool            // a call of Fill may take long
		dropping int             // calls of dropStreams that are running

		keep  keepAlive
		drain *time.Timer
	}
}

func (l *link) init(nc net.Conn, o *Options) {
	l.o = o
	l.socket.connect(nc)
	l.mu.changed.L = &l.mu
	l.mu.table, l.mu.out = newTable(), newScheduler()
	l.mu.promises.most = o.MaxUnreadBytes / 2
}

// waitForEnd waits for the last write and for the removal of all streams. It returns why the
// connection has ended.
func (l *link) waitForEnd() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.mu.writing || l.mu.dropping > 0 { // the write fails now, and refers to buffers until then
		l.mu.changed.Wait()
	}
	return l.mu.err
}

// closeConn closes the connection and ends its streams. err is the reason, unless there is one
// already.
func (l *link) closeConn(err error) {
	l.mu.Lock()
	l.loseConn(connClose, err)
}

// loseConn closes the connection if the event e leads to that. mu must be held; loseConn unlocks
// it.
func (l *link) loseConn(e connEvent, err error) {
	if !l.mu.state.move(e) {
		l.mu.Unlock()
		return
	}
	if l.mu.err == nil {
		l.mu.err = err // otherwise the connection was already ending for another reason
	}
	l.mu.keep.stopTimer()
	if l.mu.drain != nil {
		l.mu.drain.Stop()
	}
	l.mu.changed.Broadcast()
	dropped := l.takeStreams()
	l.mu.Unlock()
	l.dropStreams(dropped)
	l.socket.close()
}

// failConn ends the connection because of a mistake of the client, and tells the client. The reader
// calls it, and reads on for a moment.
func (l *link) failConn(code http2.ErrCode, text string) error {
	l.mu.Lock()
	if l.mu.state == connFailing || l.mu.state == connLost {
		defer l.mu.Unlock()
		return l.mu.err
	}
	err := &EndedError{code, text}
	l.mu.err = err
	if l.mu.state.move(connFail) {
		l.mu.out.control = appendGoAway(l.mu.out.control, l.mu.table.accepted, code, text)
	}
	dropped := l.takeStreams()
	l.mu.Unlock()
	l.dropStreams(dropped)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handOver()
	return err
}

// EndedError is the error of a connection that the server has ended because of the client's
// mistake.
type EndedError struct {
	Code http2.ErrCode // that was sent to the client
	Text string
}

// Error implements error.
func (e *EndedError) Error() string { return "ended with " + e.Code.String() + ": " + e.Text }

// startDraining tells the client to send no further requests.
func (l *link) startDraining() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.mu.state.move(connDrain) {
		return
	}
	wait := lateTime
	if l.mu.state == connWarned {
		wait = drainTime
		b := appendGoAway(l.mu.out.control, 1<<31-1, http2.ErrCodeNo, "graceful_stop")
		l.mu.out.control = appendPing(b, false, drainPing)
		l.handOver()
	}
	l.mu.drain = time.AfterFunc(wait, l.cutOffRequests)
}

// drainPing is the ping whose acknowledgement proves that the client has received the first GOAWAY.
var drainPing = [8]byte{'d', 'r', 'a', 'i', 'n', 'i', 'n', 'g'}

// cutOffRequests lets a draining connection accept no more requests. It closes a connection without
// a handshake.
func (l *link) cutOffRequests() {
	l.mu.Lock()
	if l.mu.state == connShakingLate {
		l.loseConn(connCutOff, net.ErrClosed)
		return
	}
	defer l.mu.Unlock()
	if l.mu.state.move(connCutOff) {
		l.mu.out.control = appendGoAway(l.mu.out.control, l.mu.table.accepted, http2.ErrCodeNo,
			"graceful_stop")
		l.handOver()
	}
}

// finishOutput ends all writing if everything that the connection is for has been written. It
// reports whether it did: then the caller must call endOutput. Answers to later frames of the
// client, such as pings, are not written: that write would fail and end the connection while its
// last answers are on the way. mu must be held.
func (l *link) finishOutput() bool {
	if l.hasOutput() || l.mu.state == connEnding && !l.mu.table.isEmpty() {
		return false
	}
	return l.mu.state.move(connFinish)
}

// endOutput shuts the output after finishOutput. The reader then sees the client's end, or closes
// the connection after lingerTime.
func (l *link) endOutput() {
	l.socket.closeWrite()
	_ = l.socket.nc.SetReadDeadline(time.Now().Add(lingerTime)) // fails only after a close
}

// hasOutput reports whether something can be written. mu must be held.
func (l *link) hasOutput() bool { return l.mu.state != connShut && l.mu.out.hasOutput() }

// waitForWriter waits while the client does not read the output that its frames have caused. mu
// must be held.
func (l *link) waitForWriter() {
	for len(l.mu.out.control) > maxControl && l.mu.state.writes() {
		l.handOver()
		l.mu.changed.Wait()
	}
}

// waitForHandlers waits while too many handlers run whose streams the client has reset. mu must be
// held.
func (l *link) waitForHandlers() {
	for l.mu.table.abandoned >= maxAbandoned && l.mu.state != connLost {
		l.handOver()
		l.mu.changed.Wait()
	}
}

// maxAbandoned is how many handlers may run whose streams the client has reset.
const maxAbandoned = 1000

// waitForOutput waits until everything is written. mu must be held.
func (l *link) waitForOutput() {
	for l.mu.state != connLost && (l.mu.writing || l.hasOutput()) {
		l.mu.changed.Wait()
	}
}

// startKeepAlive starts the timer that watches for silence. mu must be held.
func (l *link) startKeepAlive() {
	if l.mu.state == connLost {
		return // a timer would keep the memory of the connection
	}
	l.mu.keep.timer = time.AfterFunc(l.o.PingInterval, l.checkSilence)
}

// checkSilence pings a client that is silent, or closes its connection.
func (l *link) checkSilence() {
	l.mu.Lock()
	if l.mu.state == connLost {
		l.mu.Unlock()
		return
	}
	ping, wait, err := l.mu.keep.check(time.Now(), epoch.Add(time.Duration(l.lastRead.Load())),
		l.o.PingInterval, l.o.PingTimeout)
	if err != nil {
		l.loseConn(connClose, err)
		return
	}
	defer l.mu.Unlock()
	if ping && l.mu.state.queues() {
		l.mu.out.control = appendPing(l.mu.out.control, false, [8]byte{})
		l.handOver()
	}
	l.mu.keep.timer.Reset(wait)
}
