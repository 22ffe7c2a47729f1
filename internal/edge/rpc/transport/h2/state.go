package h2

// connState is how far a connection has come. Events move it, as connMoves says.
type connState uint8

const (
	// connShaking: the handshake is not complete.
	connShaking connState = iota
	// connShakingLate: the same, and the server stops. The client has lateTime for its handshake.
	connShakingLate
	// connOpen: requests are accepted.
	connOpen
	// connWarned: the server stops, and the client may not know that yet. Requests are accepted.
	connWarned
	// connEnding: a GOAWAY has named the last request that the server accepts. Later ones are
	// ignored.
	connEnding
	// connFailing: a GOAWAY has named the client's mistake. Nothing is queued after it.
	connFailing
	// connShut: everything was written, and nothing more will be. The reader waits for the client's
	// end.
	connShut
	// connLost: the connection is closed.
	connLost

	connStates
)

// connEvent is what can happen to a connection.
type connEvent uint8

const (
	connGreet  connEvent = iota // the client has completed its handshake
	connDrain                   // the server stops
	connCutOff                  // the client knows that the server stops, or had time to learn it
	connFail                    // the client has made a mistake
	connFinish                  // the writer has written the last frame
	connClose                   // either side has closed the connection

	connEvents
)

// connMoves has the state after each event. An event that is not listed has no effect: no event
// leads back to connShaking, the zero value.
var connMoves = [connStates][connEvents]connState{
	connShaking: {connGreet: connOpen, connDrain: connShakingLate,
		connFail: connFailing, connClose: connLost},
	connShakingLate: {connGreet: connWarned, connCutOff: connLost,
		connFail: connFailing, connClose: connLost},
	connOpen:    {connDrain: connWarned, connFail: connFailing, connClose: connLost},
	connWarned:  {connCutOff: connEnding, connFail: connFailing, connClose: connLost},
	connEnding:  {connFinish: connShut, connFail: connFailing, connClose: connLost},
	connFailing: {connFinish: connShut, connClose: connLost},
	connShut:    {connClose: connLost},
	connLost:    {},
}

// move changes the state by an event, and reports whether it had an effect.
func (s *connState) move(e connEvent) bool {
	next := connMoves[*s][e]
	if next == connShaking {
		return false
	}
	*s = next
	return true
}

// queues reports whether frames may be queued. After the GOAWAY for a mistake nothing follows.
func (s connState) queues() bool { return s < connFailing }

// writes reports whether queued frames are written.
func (s connState) writes() bool { return s < connShut }

// ignoresRequests reports whether a new request is ignored.
func (s connState) ignoresRequests() bool { return s >= connEnding }

// streamState is how far a request and its answer are. Events move it, as streamMoves says. The
// first part of a name is the client's side: its body continues (open), or is complete (half, for
// RFC 9113's half-closed). The second part is ours.
type streamState uint8

const (
	// openIdle and halfIdle: the answer is not complete, and no handler runs.
	openIdle streamState = iota
	halfIdle
	// openHeld and halfHeld: a handler runs.
	openHeld
	halfHeld
	// openAnswered and halfAnswered: the answer is complete. The writer has not written all of it.
	openAnswered
	halfAnswered
	// openExpired and halfExpired: the same, because the deadline has passed, and the handler still
	// runs.
	openExpired
	halfExpired
	// streamAbandoned: the stream does not exist any more, and its handler still runs.
	streamAbandoned
	// streamClosed: the stream does not exist any more.
	streamClosed

	streamStates
)

// streamEvent is what can happen to a stream.
type streamEvent uint8

const (
	streamBodyEnds streamEvent = iota // the client has ended its body
	streamHold                        // a handler begins
	streamFinish                      // the answer is complete, or its late handler ends
	streamExpire                      // the deadline has passed
	streamRemove                      // the answer is written, either side resets it, or the connection ends

	streamEvents
)

// streamMoves has the state after each event. An event that is not listed has no effect: no event
// leads back to openIdle, the zero value.
var streamMoves = [streamStates][streamEvents]streamState{
	openIdle: {streamBodyEnds: halfIdle, streamHold: openHeld,
		streamFinish: openAnswered, streamExpire: openAnswered, streamRemove: streamClosed},
	halfIdle: {streamHold: halfHeld,
		streamFinish: halfAnswered, streamExpire: halfAnswered, streamRemove: streamClosed},
	openHeld: {streamBodyEnds: halfHeld,
		streamFinish: openAnswered, streamExpire: openExpired, streamRemove: streamAbandoned},
	halfHeld: {
		streamFinish: halfAnswered, streamExpire: halfExpired, streamRemove: streamAbandoned},
	openAnswered: {streamBodyEnds: halfAnswered, streamHold: openExpired,
		streamRemove: streamClosed},
	halfAnswered: {streamHold: halfExpired,
		streamRemove: streamClosed},
	openExpired: {streamBodyEnds: halfExpired,
		streamFinish: openAnswered, streamRemove: streamAbandoned},
	halfExpired: {
		streamFinish: halfAnswered, streamRemove: streamAbandoned},
	streamAbandoned: {streamFinish: streamClosed},
	streamClosed:    {},
}

// move changes the state by an event and returns the state before it.
func (s *streamState) move(e streamEvent) (before streamState) {
	before = *s
	if next := streamMoves[before][e]; next != openIdle {
		*s = next
	}
	return before
}

// gone reports whether the stream does not exist any more.
func (s streamState) gone() bool { return s >= streamAbandoned }

// sends reports whether more of the answer may be queued.
func (s streamState) sends() bool { return s < openAnswered }

// answered reports whether the answer is complete and the writer has not written all of it.
func (s streamState) answered() bool { return s >= openAnswered && s < streamAbandoned }

// bodyEnded reports whether the client has ended its body. It must not be asked of a stream that is
// gone.
func (s streamState) bodyEnded() bool { return s < streamAbandoned && s%2 == 1 }
