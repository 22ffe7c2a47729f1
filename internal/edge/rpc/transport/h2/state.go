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
	// connEnding: a GOAWAY has named the last request that the server accepts. Later ones are ignored.
	connEnding
	// connFailing: a GOAWAY has named the client's mistake. Nothing is queued after it.
	connFailing
	// connShut: everything was written, and nothing more will be. The reader waits for the client's end.
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
	connCutOff                  // the client knows that the server stops, or had enough time to learn it
	connFail                    // the client has made a mistake
	connFinish                  // the writer has written the last frame
	connClose                   // either side has closed the connection

	connEvents
)

// connMoves has the state after each event. An event without effect has the state before it.
var connMoves = [connStates][connEvents]connState{
	//                greet       drain            cut off          fail         finish       close
	connShaking:     {connOpen, connShakingLate, connShaking, connFailing, connShaking, connLost},
	connShakingLate: {connWarned, connShakingLate, connLost, connFailing, connShakingLate, connLost},
	connOpen:        {connOpen, connWarned, connOpen, connFailing, connOpen, connLost},
	connWarned:      {connWarned, connWarned, connEnding, connFailing, connWarned, connLost},
	connEnding:      {connEnding, connEnding, connEnding, connFailing, connShut, connLost},
	connFailing:     {connFailing, connFailing, connFailing, connFailing, connShut, connLost},
	connShut:        {connShut, connShut, connShut, connShut, connShut, connLost},
	connLost:        {connLost, connLost, connLost, connLost, connLost, connLost},
}

// move changes the state by an event, and reports whether it had an effect.
func (s *connState) move(e connEvent) bool {
	before := *s
	*s = connMoves[before][e]
	return *s != before
}

// queues reports whether frames may be queued. After the GOAWAY for a mistake nothing follows.
func (s connState) queues() bool { return s < connFailing }

// writes reports whether queued frames are written.
func (s connState) writes() bool { return s < connShut }

// ignoresRequests reports whether a new request is ignored.
func (s connState) ignoresRequests() bool { return s >= connEnding }

// streamState is how far a request and its answer are. Events move it, as streamMoves says. The first part of a name is the
// client's side: its body continues (open), or is complete (half, for RFC 9113's half-closed). The second part is ours.
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
	// openExpired and halfExpired: the same, because the deadline has passed, and the handler still runs.
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
	streamFinish                      // the answer is complete, or a handler that runs too long ends
	streamExpire                      // the deadline has passed
	streamRemove                      // the answer was written, either side has reset the stream, or the connection ends

	streamEvents
)

// streamMoves has the state after each event. An event without effect has the state before it.
var streamMoves = [streamStates][streamEvents]streamState{
	//                body ends     hold         finish        expire        remove
	openIdle:        {halfIdle, openHeld, openAnswered, openAnswered, streamClosed},
	halfIdle:        {halfIdle, halfHeld, halfAnswered, halfAnswered, streamClosed},
	openHeld:        {halfHeld, openHeld, openAnswered, openExpired, streamAbandoned},
	halfHeld:        {halfHeld, halfHeld, halfAnswered, halfExpired, streamAbandoned},
	openAnswered:    {halfAnswered, openExpired, openAnswered, openAnswered, streamClosed},
	halfAnswered:    {halfAnswered, halfExpired, halfAnswered, halfAnswered, streamClosed},
	openExpired:     {halfExpired, openExpired, openAnswered, openExpired, streamAbandoned},
	halfExpired:     {halfExpired, halfExpired, halfAnswered, halfExpired, streamAbandoned},
	streamAbandoned: {streamAbandoned, streamAbandoned, streamClosed, streamAbandoned, streamAbandoned},
	streamClosed:    {streamClosed, streamClosed, streamClosed, streamClosed, streamClosed},
}

// move changes the state by an event and returns the state before it.
func (s *streamState) move(e streamEvent) (before streamState) {
	before = *s
	*s = streamMoves[before][e]
	return before
}

// gone reports whether the stream does not exist any more.
func (s streamState) gone() bool { return s >= streamAbandoned }

// sends reports whether more of the answer may be queued.
func (s streamState) sends() bool { return s < openAnswered }

// answered reports whether the answer is complete and the writer has not written all of it.
func (s streamState) answered() bool { return s >= openAnswered && s < streamAbandoned }

// bodyEnded reports whether the client has ended its body. It must not be asked of a stream that is gone.
func (s streamState) bodyEnded() bool { return s < streamAbandoned && s%2 == 1 }
