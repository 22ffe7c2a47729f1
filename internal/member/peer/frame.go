package peer

import (
	"errors"
	"hash/crc32"
	"io"
)

// frameType is what a frame holds.
type frameType uint8

const (
	frameAlive    frameType = 1  // a sign of life
	framePing     frameType = 2  // to be answered by framePong with the same bytes
	framePong     frameType = 3  //
	frameClose    frameType = 4  // why the sender ends the stream: code, text
	frameControl  frameType = 5  // a raft message of the control lane
	frameLog      frameType = 6  // a raft message of the log lane
	frameRequest  frameType = 7  // a call
	frameResponse frameType = 8  // its answer
	frameMeta     frameType = 9  // the metadata of a bulk transfer
	frameData     frameType = 10 // some of its bytes
	frameEnd      frameType = 11 // its length and checksum
	frameResult   frameType = 12 // what the receiver made of it: code, text
	frameInvite   frameType = 13 // asks the receiver to connect for a stream of the sender
	lastFrame               = frameInvite
)

const (
	frameHeader = 12
	// maxFrame bounds the payload of a frame. Longer payloads are split if the type allows it.
	maxFrame = 64 << 10
	// flagMore: the next frame of this type continues this payload.
	flagMore = 1
)

// splits reports which frames may be continued by another one.
func (t frameType) splits() bool {
	return t == frameLog || t == frameRequest || t == frameResponse
}

// A frame:
//
//	type u8 | flags u8 | 0 u16 | length u32 | checksum u32 | payload
//
// where the checksum covers the first eight bytes and the payload.

// beginFrame appends room for a header; sealFrame fills it in when the payload is appended.
func beginFrame(b []byte) []byte { return append(b, make([]byte, frameHeader)...) }

func sealFrame(frame []byte, t frameType, flags byte) {
	frame[0], frame[1], frame[2], frame[3] = byte(t), flags, 0, 0
	le.PutUint32(frame[4:], uint32(len(frame)-frameHeader))
	le.PutUint32(frame[8:], frameSum(frame))
}

func frameSum(frame []byte) uint32 {
	return crc32.Update(crc32.Checksum(frame[:8], castagnoli), castagnoli, frame[frameHeader:])
}

// appendFrame appends one frame.
func appendFrame(b []byte, t frameType, flags byte, payload []byte) []byte {
	at := len(b)
	b = append(beginFrame(b), payload...)
	sealFrame(b[at:], t, flags)
	return b
}

// appendFrames appends a payload of any length as frames of a type that may be split.
func appendFrames(b []byte, t frameType, payload []byte) []byte {
	for len(payload) > maxFrame {
		b = appendFrame(b, t, flagMore, payload[:maxFrame])
		payload = payload[maxFrame:]
	}
	return appendFrame(b, t, 0, payload)
}

// parseFrame reads a header and returns the length of the payload.
func parseFrame(b []byte) (t frameType, flags byte, length int, err error) {
	t, flags = frameType(b[0]), b[1]
	n := le.Uint32(b[4:])
	switch {
	case t < frameAlive || t > lastFrame || b[2] != 0 || b[3] != 0 || flags&^flagMore != 0:
		return 0, 0, 0, refuse(CodeMalformed, "frame header % x", b[:8])
	case n > maxFrame:
		return 0, 0, 0, refuse(CodeMalformed, "frame of %d bytes, the most is %d", n, maxFrame)
	case flags&flagMore != 0 && (!t.splits() || n == 0):
		return 0, 0, 0, refuse(CodeMalformed, "frame of type %d to be continued", t)
	}
	return t, flags, int(n), nil
}

// encodeReason is the payload of frameClose and frameResult; decodeReason its inverse, nil for code
// 0.
func encodeReason(e *Error) []byte {
	if e == nil {
		return []byte{0, 0}
	}
	return append(le.AppendUint16(nil, uint16(e.Code)), clip(e.Text)...)
}

func decodeReason(b []byte) (*Error, error) {
	if len(b) < 2 || len(b) > 2+maxText {
		return nil, refuse(CodeMalformed, "reason of %d bytes", len(b))
	}
	c := Code(le.Uint16(b))
	if c == 0 {
		return nil, nil
	}
	return &Error{Code: c, Text: printable(b[2:]), remote: true}, nil
}

// request is the payload of frameRequest:
//
//	id u64 | kind u8 | 0 u8 u16 | milliseconds u32 | payload
type request struct {
	id      uint64
	kind    uint8
	millis  uint32
	payload []byte
}

const requestHeader = 16

func (r *request) encode() []byte {
	b := le.AppendUint64(make([]byte, 0, requestHeader+len(r.payload)), r.id)
	b = append(b, r.kind, 0, 0, 0)
	b = le.AppendUint32(b, r.millis)
	return append(b, r.payload...)
}

// decodeRequest returns a request that aliases b.
func decodeRequest(b []byte) (request, error) {
	if len(b) < requestHeader {
		return request{}, refuse(CodeMalformed, "call of %d bytes", len(b))
	}
	return request{id: le.Uint64(b), kind: b[8], millis: le.Uint32(b[12:]),
		payload: b[requestHeader:]}, nil
}

// response is the payload of frameResponse:
//
//	id u64 | code u16 | 0 u16 | payload, or the text of a code that is not 0
type response struct {
	id      uint64
	err     *Error
	payload []byte
}

const responseHeader = 12

func (r *response) encode() []byte {
	b := le.AppendUint64(make([]byte, 0, responseHeader+len(r.payload)), r.id)
	if r.err != nil {
		b = le.AppendUint32(b, uint32(r.err.Code))
		return append(b, clip(r.err.Text)...)
	}
	return append(le.AppendUint32(b, 0), r.payload...)
}

// decodeResponse returns a response that aliases b.
func decodeResponse(b []byte) (response, error) {
	if len(b) < responseHeader || le.Uint16(b[10:]) != 0 {
		return response{}, refuse(CodeMalformed, "answer to a call of %d bytes", len(b))
	}
	r := response{id: le.Uint64(b)}
	if c := Code(le.Uint16(b[8:])); c != 0 {
		text := b[responseHeader:]
		r.err = &Error{Code: c, Text: printable(text[:min(len(text), maxText)]), remote: true}
		return r, nil
	}
	r.payload = b[responseHeader:]
	return r, nil
}

// frames reads frames and puts split ones together.
type frames struct {
	r     peeker
	limit int // of what was split, in bytes

	skip    int // bytes of the last frame, still in the buffer
	partial []byte
	typ     frameType // of partial, 0 if there is none
	whole   bool      // partial was returned
}

// peeker is a bufio.Reader with room for the largest frame.
type peeker interface {
	Peek(n int) ([]byte, error)
	Discard(n int) (int, error)
	Buffered() int
}

// next returns the next whole payload, which is valid until the next call. It returns io.EOF only
// between two frames, when nothing is left to be continued.
func (f *frames) next() (frameType, []byte, error) {
	for {
		t, flags, payload, err := f.frame()
		if err != nil {
			if err == io.EOF && f.typ != 0 {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		if flags&flagMore == 0 && t != f.typ {
			return t, payload, nil
		}
		if f.typ != 0 && f.typ != t {
			return 0, nil, refuse(CodeMalformed, "frame of type %d inside one of type %d", t, f.typ)
		}
		if len(f.partial)+len(payload) > f.limit {
			return 0, nil, refuse(CodeTooLarge,
				"frames of type %d with more than %d bytes", t, f.limit)
		}
		f.typ = t
		f.partial = append(f.partial, payload...)
		if flags&flagMore == 0 {
			f.typ, f.whole = 0, true
			return t, f.partial, nil
		}
	}
}

// frame returns the next frame.
func (f *frames) frame() (frameType, byte, []byte, error) {
	f.release()
	b, err := f.r.Peek(frameHeader)
	if err != nil {
		return 0, 0, nil, f.cut(err)
	}
	t, flags, n, err := parseFrame(b)
	if err != nil {
		return 0, 0, nil, err
	}
	if b, err = f.r.Peek(frameHeader + n); err != nil {
		return 0, 0, nil, f.cut(err)
	}
	if le.Uint32(b[8:]) != frameSum(b) {
		return 0, 0, nil, refuse(CodeCorrupt, "checksum of a frame of %d bytes", n)
	}
	f.skip = len(b)
	return t, flags, b[frameHeader:], nil
}

// keepPartial is the size of the buffer that a reader keeps for the next split payload.
const keepPartial = 4 << 20

// release ends the use of the payload that the last call of next returned.
func (f *frames) release() {
	if f.skip > 0 {
		f.r.Discard(f.skip)
		f.skip = 0
	}
	if f.whole {
		f.whole = false
		f.partial = f.partial[:0]
		if cap(f.partial) > keepPartial {
			f.partial = nil
		}
	}
}

// cut turns an io.EOF inside a frame into io.ErrUnexpectedEOF.
func (f *frames) cut(err error) error {
	if errors.Is(err, io.EOF) && f.r.Buffered() > 0 {
		return io.ErrUnexpectedEOF
	}
	return err
}

// ready reports whether next returns without waiting for the network.
func (f *frames) ready() bool {
	have := f.r.Buffered() - f.skip
	if have < frameHeader {
		return false
	}
	b, err := f.r.Peek(f.skip + frameHeader)
	return err == nil && b[f.skip+1]&flagMore == 0 &&
		have-frameHeader >= int(le.Uint32(b[f.skip+4:]))
}
