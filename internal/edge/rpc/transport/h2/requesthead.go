package h2

import (
	"strconv"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// requestHead collects and checks the header of a request while it is decompressed. The reader owns
// it.
type requestHead struct {
	fields    []hpack.HeaderField
	left      int // bytes that the header may still have
	regular   bool
	malformed bool
	large     bool   // fields are missing because there were too many
	stop      func() // makes the decoder pass no more fields

	request Request // for Handler.Begin

	method, path, scheme string
	length               int64 // content-length, -1 without

	// block is the compressed header of the fields, if the same bytes mean the same fields again.
	// nblock is its length, 0 if there is none.
	block    [32]byte
	nblock   uint8
	repeated bool // the block is the same as the one before
	begun    bool // a request had these fields
}

// keepBlock keeps a block if each of its bytes is the index of a field in the decoder's table. Such
// a block does not change the table. Clients that repeat a header send such a block with all
// requests but the first ones.
func (h *requestHead) keepBlock(block []byte) {
	if len(block) > len(h.block) || h.large {
		return
	}
	for _, b := range block {
		if b <= indexed || b == indexed|longIndex {
			return
		}
	}
	h.nblock = uint8(copy(h.block[:], block))
}

// Bytes of compressed headers (RFC 7541, section 6.1): a field of the table, and an index that
// continues in the next byte.
const (
	indexed   = 0x80
	longIndex = 0x7f
)

// hasKept reports whether the present fields belong to this block.
func (h *requestHead) hasKept(block []byte) bool {
	return h.nblock > 0 && string(block) == string(h.block[:h.nblock])
}

func (h *requestHead) resetFields(most uint32) {
	clear(h.fields)
	*h = requestHead{fields: h.fields[:0], left: int(most), length: -1, stop: h.stop}
}

// releaseFields releases the fields, so that a connection without further requests does not keep
// them. It leaves the fields of a kept block, which are in the decoder's table anyway.
func (h *requestHead) releaseFields() {
	h.request = Request{}
	if h.nblock > 0 {
		return
	}
	if cap(h.fields) > 64 {
		h.fields = nil
	}
	clear(h.fields)
	h.fields = h.fields[:0]
	h.method, h.path, h.scheme = "", "", ""
}

// maxFields is how many fields a header may have. A single byte may mean a field, which takes more
// memory than HTTP/2 counts for it.
const maxFields = 1000

// addField adds the next field.
func (h *requestHead) addField(f hpack.HeaderField) {
	if h.left -= int(f.Size()); (h.left < 0 || len(h.fields) == maxFields) && !h.large {
		h.large = true
		h.stop() // from now on only the table matters
	}
	if h.large || h.malformed {
		return
	}
	if !h.isValid(f) {
		h.malformed = true
		return
	}
	h.fields = append(h.fields, f)
}

// isValid checks a field by RFC 9113, sections 8.2 and 8.3, and notes those that matter here.
func (h *requestHead) isValid(f hpack.HeaderField) bool {
	if !httpguts.ValidHeaderFieldValue(f.Value) || f.Name == "" {
		return false
	}
	if f.Name[0] == ':' {
		return !h.regular && h.addPseudo(f)
	}
	h.regular = true
	for i := range len(f.Name) {
		if c := f.Name[i]; c >= 'A' && c <= 'Z' || !httpguts.IsTokenRune(rune(c)) {
			return false
		}
	}
	switch f.Name {
	case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
		return false
	case "te":
		return f.Value == "trailers"
	case "content-length":
		n, err := strconv.ParseUint(f.Value, 10, 63)
		if err != nil || h.length >= 0 && h.length != int64(n) {
			return false
		}
		h.length = int64(n)
	}
	return true
}

// addPseudo notes a field that replaces a part of HTTP/1's request line. None may occur twice.
func (h *requestHead) addPseudo(f hpack.HeaderField) bool {
	var at *string
	switch f.Name {
	case ":method":
		at = &h.method
	case ":path":
		at = &h.path
	case ":scheme":
		at = &h.scheme
	case ":authority":
		for _, g := range h.fields {
			if g.Name == f.Name {
				return false
			}
		}
		return true
	default:
		return false
	}
	if *at != "" || f.Value == "" {
		return false
	}
	*at = f.Value
	return true
}

// decompress decompresses a block with a decoder that passes fields to addField.
func (h *requestHead) decompress(d *hpack.Decoder, block []byte, most uint32) error {
	h.resetFields(most)
	d.SetEmitEnabled(true)
	if _, err := d.Write(block); err != nil {
		return connError{http2.ErrCodeCompression, "invalid headers"}
	}
	if err := d.Close(); err != nil {
		return connError{http2.ErrCodeCompression, "truncated headers"}
	}
	h.keepBlock(block)
	return nil
}
