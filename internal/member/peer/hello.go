package peer

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// The versions of the protocol that this package speaks.
const (
	minProtocol = 1
	maxProtocol = 1
)

const (
	// magic begins a stream and its answer. Its first byte begins no HTTP request and no TLS
	// record.
	magic = "\x8fVIGLPR\n"

	maxVersion = 64  // bytes of a program's version
	maxURLs    = 16  // peer URLs of one member
	maxURL     = 512 // bytes of one
	maxText    = 512 // bytes of a reason
	maxHello   = 16 << 10
)

// kind is the purpose of a stream.
type kind uint8

const (
	kindMessages kind = 1 // raft messages
	kindCalls    kind = 2 // calls of a member
	kindBulk     kind = 3 // one bulk transfer
	kindCall     kind = 4 // one call, of a member or of a stranger
	lastKind          = kindCall
)

var kindNames = [...]string{kindMessages: "messages", kindCalls: "calls", kindBulk: "bulk",
	kindCall: "call"}

func (k kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

// hello is the first message of the dialing side.
type hello struct {
	minProtocol, maxProtocol uint8
	kind                     kind
	cluster                  uint64 // 0 if it is not known yet, for kindCall only
	from                     uint64 // 0 for a stranger, for kindCall only
	to                       uint64 // 0 if it is not known yet, for kindCall only
	// index is the raft index of the sender's membership, and urls are the sender's advertised
	// URLs. A receiver with an older membership learns the sender from them.
	index   uint64
	version string
	urls    []string
	flags   uint8
	// invitation is the id of the invitation that a reversed stream answers.
	invitation uint64
}

// reply is the answer to a hello.
type reply struct {
	protocol uint8 // 0 if it refuses
	code     Code  // 0 if it accepts
	cluster  uint64
	member   uint64
	version  string
	text     string
}

func (h *hello) encode() []byte {
	b := []byte{h.minProtocol, h.maxProtocol, byte(h.kind), h.flags}
	for _, v := range [...]uint64{h.cluster, h.from, h.to, h.index} {
		b = le.AppendUint64(b, v)
	}
	b = append(b, byte(len(h.version)))
	b = append(b, h.version...)
	b = append(b, byte(len(h.urls)))
	for _, u := range h.urls {
		b = le.AppendUint16(b, uint16(len(u)))
		b = append(b, u...)
	}
	if h.flags&flagReversed != 0 {
		b = le.AppendUint64(b, h.invitation)
	}
	return seal(b)
}

func (r *reply) encode() []byte {
	b := []byte{r.protocol, 0}
	b = le.AppendUint16(b, uint16(r.code))
	b = le.AppendUint64(b, r.cluster)
	b = le.AppendUint64(b, r.member)
	b = append(b, byte(len(r.version)))
	b = append(b, r.version...)
	text := clip(r.text)
	b = le.AppendUint16(b, uint16(len(text)))
	b = append(b, text...)
	return seal(b)
}

// clip bounds a text that crosses the wire.
func clip(s string) string {
	if len(s) > maxText {
		return s[:maxText-3] + "..."
	}
	return s
}

// seal puts magic and length before a body and the checksum after it.
func seal(body []byte) []byte {
	b := make([]byte, 0, len(magic)+2+len(body)+4)
	b = append(b, magic...)
	b = le.AppendUint16(b, uint16(len(body)))
	b = append(b, body...)
	return le.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readSealed reads the output of seal and returns the body.
func readSealed(r io.Reader) ([]byte, error) {
	head := make([]byte, len(magic)+2)
	n, err := io.ReadFull(r, head)
	if most := min(n, len(magic)); string(head[:most]) != magic[:most] {
		return nil, refuse(CodeMalformed, "%s", strangeBytes(head[:n]))
	}
	if err != nil {
		return nil, err
	}
	n = int(le.Uint16(head[len(magic):]))
	if n > maxHello {
		return nil, refuse(CodeMalformed, "handshake of %d bytes, the most is %d", n, maxHello)
	}
	rest := make([]byte, n+4)
	if _, err := io.ReadFull(r, rest); err != nil {
		return nil, unexpected(err)
	}
	sum := crc32.Update(crc32.Checksum(head, castagnoli), castagnoli, rest[:n])
	if sum != le.Uint32(rest[n:]) {
		return nil, refuse(CodeCorrupt, "checksum of the handshake")
	}
	return rest[:n], nil
}

// strangeBytes describes the probable protocol of a connection that does not begin with the magic.
func strangeBytes(b []byte) string {
	switch {
	case b[0] == 0x15 || b[0] == 0x16:
		return "the other side speaks TLS: an https peer URL is needed"
	case strings.HasPrefix(string(b), "HTTP"):
		return "the other side answers in HTTP: this is no Vigil peer URL"
	}
	return fmt.Sprintf("the other side does not speak this protocol: it begins with %q", b)
}

func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fields decodes a body. After the first missing field it returns zeros and bad is set.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) nextBytes(n int) []byte {
	if f.bad || n > len(f.b) {
		f.bad = true
		return nil
	}
	out := f.b[:n]
	f.b = f.b[n:]
	return out
}

func (f *fields) u8() uint8 {
	if b := f.nextBytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (f *fields) u16() uint16 {
	if b := f.nextBytes(2); b != nil {
		return le.Uint16(b)
	}
	return 0
}

func (f *fields) u64() uint64 {
	if b := f.nextBytes(8); b != nil {
		return le.Uint64(b)
	}
	return 0
}

// text reads n bytes. It fails if n exceeds most or a byte is not printable ASCII: these texts end
// up in logs.
func (f *fields) text(n, most int) string {
	if n > most {
		f.bad = true
	}
	b := f.nextBytes(n)
	for _, c := range b {
		if c < ' ' || c > '~' {
			f.bad = true
			return ""
		}
	}
	return string(b)
}

// decodeHello reads the body of a hello. What follows the fields belongs to a later version. If the
// sender's versions and this package's do not overlap, it returns only the versions.
func decodeHello(b []byte) (hello, error) {
	f := fields{b: b}
	h := hello{minProtocol: f.u8(), maxProtocol: f.u8()}
	if f.bad || h.minProtocol > h.maxProtocol {
		return hello{}, refuse(CodeMalformed, "handshake without versions")
	}
	if h.minProtocol > maxProtocol || h.maxProtocol < minProtocol {
		return h, nil
	}
	h.kind = kind(f.u8())
	h.flags = f.u8()
	h.cluster, h.from, h.to, h.index = f.u64(), f.u64(), f.u64(), f.u64()
	h.version = f.text(int(f.u8()), maxVersion)
	n := int(f.u8())
	if n > maxURLs {
		f.bad = true
	}
	for i := 0; i < n && !f.bad; i++ {
		h.urls = append(h.urls, f.text(int(f.u16()), maxURL))
	}
	if h.flags&flagReversed != 0 {
		h.invitation = f.u64()
	}
	if f.bad {
		return hello{}, refuse(CodeMalformed, "handshake with broken fields")
	}
	if err := checkURLs(h.urls); err != nil {
		return hello{}, refuse(CodeMalformed, "handshake: %v", err)
	}
	return h, nil
}

// decodeReply reads the body of a reply.
func decodeReply(b []byte) (reply, error) {
	f := fields{b: b}
	r := reply{protocol: f.u8()}
	f.u8()
	r.code = Code(f.u16())
	r.cluster, r.member = f.u64(), f.u64()
	r.version = f.text(int(f.u8()), maxVersion)
	r.text = printable(f.nextBytes(min(int(f.u16()), maxText)))
	if f.bad || (r.code == 0) == (r.protocol == 0) {
		return reply{}, refuse(CodeMalformed, "answer to the handshake with broken fields")
	}
	return r, nil
}

// printable replaces the bytes of a received text that must not appear in a log.
func printable(b []byte) string {
	out := make([]byte, len(b))
	for i, c := range b {
		if c < ' ' || c > '~' {
			c = '?'
		}
		out[i] = c
	}
	return string(out)
}
