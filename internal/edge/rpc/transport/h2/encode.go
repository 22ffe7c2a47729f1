package h2

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// appendFrame appends the header of a frame with n bytes of content.
func appendFrame(b []byte, n int, kind http2.FrameType, flags http2.Flags, id uint32) []byte {
	return append(b, byte(n>>16), byte(n>>8), byte(n), byte(kind), byte(flags), byte(id>>24),
		byte(id>>16), byte(id>>8), byte(id))
}

func appendWindowUpdate(b []byte, id, n uint32) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, 4, http2.FrameWindowUpdate, 0, id), n)
}

func appendReset(b []byte, id uint32, code http2.ErrCode) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, 4, http2.FrameRSTStream, 0,
		id), uint32(code))
}

func appendPing(b []byte, ack bool, data [8]byte) []byte {
	var flags http2.Flags
	if ack {
		flags = http2.FlagPingAck
	}
	return append(appendFrame(b, 8, http2.FramePing, flags, 0), data[:]...)
}

func appendGoAway(b []byte, last uint32, code http2.ErrCode, text string) []byte {
	b = appendFrame(b, 8+len(text), http2.FrameGoAway, 0, 0)
	b = binary.BigEndian.AppendUint32(b, last)
	return append(binary.BigEndian.AppendUint32(b, uint32(code)), text...)
}

func appendSettings(b []byte, list ...http2.Setting) []byte {
	b = appendFrame(b, 6*len(list), http2.FrameSettings, 0, 0)
	for _, s := range list {
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(b, uint16(s.ID)), s.Val)
	}
	return b
}

// headerEncoder compresses headers. Only common headers enter the table, so each of their fields
// becomes one byte, and these bytes stay valid until another common header enters.
type headerEncoder struct {
	enc     *hpack.Encoder
	buf     bytes.Buffer
	known   []knownHeader
	resized bool // the next block must begin with the size of the table
}

// knownHeader is a common header whose block does not change the table.
type knownHeader struct {
	header *Header
	block  []byte
}

// maxKnown is the largest number of headers whose blocks are kept.
const maxKnown = 8

func newHeaderEncoder() *headerEncoder {
	e := &headerEncoder{}
	e.enc = hpack.NewEncoder(&e.buf)
	return e
}

// setTableSize limits the table to the size that the client allows, and to 4,096 bytes, the
// default.
func (e *headerEncoder) setTableSize(n uint32) {
	// the block will have two sizes, and hpack.Decoder accepts the second only if its table is
	// empty
	if e.resized {
		e.enc.SetMaxDynamicTableSize(0)
	}
	e.resized = true
	e.enc.SetMaxDynamicTableSize(min(n, 4096))
	e.known = e.known[:0]
}

// encodeHeader returns the block of a header. It is valid until the next call.
func (e *headerEncoder) encodeHeader(h *Header) []byte {
	for i := range e.known {
		if e.known[i].header == h {
			return e.known[i].block
		}
	}
	e.buf.Reset()
	e.resized = false
	for _, f := range h.Fields {
		f.Sensitive = !h.Common // sensitive fields enter no table
		_ = e.enc.WriteField(f) // a buffer does not fail
	}
	block := e.buf.Bytes()
	if !h.Common {
		return block
	}
	if !allIndexed(block) {
		e.known = e.known[:0] // a new entry moves the others
	} else if len(e.known) < maxKnown {
		e.known = append(e.known, knownHeader{h, bytes.Clone(block)})
	}
	return block
}

// allIndexed reports whether every byte of a block is the index of a field.
func allIndexed(block []byte) bool {
	for _, b := range block {
		if b < 0x80 || b == 0xff {
			return false
		}
	}
	return true
}
