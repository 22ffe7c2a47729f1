package transport

import (
	"context"
	"encoding/base64"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/internal/edge/rpc/transport/h2"
)

const contentType = "application/grpc"

// lastMetadata has the metadata of the last request on a connection. Most clients send the same
// metadata with each request, and nobody changes received metadata, so requests can share them.
type lastMetadata struct {
	base   context.Context // without metadata
	fields []hpack.HeaderField
	*received
}

// received has the metadata of a request. Calls with equal metadata share it.
type received struct {
	md     metadata.MD
	values context.Context // with the metadata
}

// maxKept is the largest size, in bytes, of metadata that are kept for the next request.
const maxKept = 16 << 10

// callHeader has what the header of a request says about the call. After Begin only special
// changes.
type callHeader struct {
	method   *Method    // nil if the call is rejected
	metadata *received  // nil if the call is rejected
	special  *special   // nil for most calls
	rejected *rejection // nil unless it is rejected

	timeout    time.Duration // if hasTimeout
	hasTimeout bool
}

// special has what few calls need. The reader makes it, or the handler before it sends.
type special struct {
	subtype    string // of the content type
	received   string // the encoding of messages that are received
	compressor encoding.Compressor
	sent       string          // the encoding of answers; owned by the goroutine that sends
	tagged     context.Context // the call with what a stats handler adds
}

// plain stands for the special of all other calls.
var plain special

// peekSpecial returns h.special or plain. The caller must not change it.
func (h *callHeader) peekSpecial() *special {
	if h.special == nil {
		return &plain
	}
	return h.special
}

// makeSpecial returns h.special for changes, and makes it if there is none.
func (h *callHeader) makeSpecial() *special {
	if h.special == nil {
		h.special = &special{}
	}
	return h.special
}

// receivesPlain reports whether the messages of the client are not compressed.
func (h *callHeader) receivesPlain() bool {
	return h.special == nil || h.special.received == "" || h.special.received == encoding.Identity
}

// sendsPlain reports whether answers are not compressed.
func (h *callHeader) sendsPlain() bool {
	return h.special == nil || h.special.sent == "" || h.special.sent == encoding.Identity
}

// rejection says why a call is answered without running a handler.
type rejection struct {
	err    error
	http   int  // the status, 0 for 200
	noType bool // the request has no content type: the client does not speak gRPC
	asText bool // the client gets the reason as text
	// foreign: the content type says that the request is not gRPC.
	foreign bool
}

// hasNoType reports whether the request has no content type, so that the client does not speak
// gRPC.
func (h *callHeader) hasNoType() bool { return h.rejected != nil && h.rejected.noType }

// reject notes that the call is rejected with an error and a status of HTTP.
func (h *callHeader) reject(http int, err error) {
	h.rejected = &rejection{err: err, http: http}
}

// readHeader reads what the header of a request says about the call.
func (c *clientConn) readHeader(r *h2.Request) (h callHeader) {
	kind, valid, authority, hosts := "", false, 0, 0
	var bad error
	for i := range r.Fields {
		switch f := &r.Fields[i]; f.Name {
		case "content-type":
			if sub, ok := subtype(f.Value); ok {
				if valid = true; sub != "" {
					h.makeSpecial().subtype = sub
				}
			} else {
				kind = f.Value
			}
		case "grpc-encoding":
			h.makeSpecial().received = f.Value
		case "grpc-timeout":
			d, err := parseTimeout(f.Value)
			if err != nil {
				bad = status.Errorf(codes.Internal, "malformed grpc-timeout: %v", err)
			}
			h.timeout, h.hasTimeout = d, true
		case ":authority":
			authority++
		case "host":
			hosts++
		default:
			if strings.HasSuffix(f.Name, "-bin") {
				if _, err := decodeBinary(f.Value); err != nil {
					bad = status.Errorf(codes.Internal,
						"malformed binary metadata %q in header %q: %v", shorten(f.Value),
						shorten(f.Name), err)
				}
			}
		}
	}
	switch {
	case authority > 1 || hosts > 1:
		h.reject(400, status.Errorf(codes.Internal,
			"num values of :authority: %v, num values of host: %v, both must only have 1 value as per HTTP/2 spec", authority, hosts))
	case !valid:
		h.reject(415, status.Errorf(codes.InvalidArgument, "invalid gRPC request content-type %q",
			shorten(kind)))
		h.rejected.foreign = !strings.HasPrefix(kind, contentType)
		h.rejected.noType = kind == ""
		h.rejected.asText = kind == "" && r.Method == "GET"
	case bad != nil:
		h.reject(400, bad)
	case authority == 0 && hosts == 0:
		h.reject(400, status.Error(codes.Internal, "no host or :authority header present"))
	case r.Method != "POST":
		h.reject(405, status.Errorf(codes.Internal,
			"Received a HEADERS frame with :method %q which should be POST", shorten(r.Method)))
	case h.hasTimeout && h.timeout <= 0:
		h.reject(200, status.Error(codes.DeadlineExceeded, "context deadline exceeded"))
	}
	if h.rejected != nil {
		return h
	}
	h.metadata = c.last.metadataOf(r.Fields)
	if h.method = c.server.methods[r.Path]; h.method == nil {
		h.reject(0, status.Error(codes.Unimplemented, c.server.unknownMethodText(r.Path)))
		return h
	}
	h.chooseEncoding()
	return h
}

// chooseEncoding chooses how to decompress messages. Answers are compressed in the same way.
func (h *callHeader) chooseEncoding() {
	if h.receivesPlain() {
		return
	}
	e := h.special
	if e.compressor = encoding.GetCompressor(e.received); e.compressor == nil {
		h.reject(0, status.Errorf(codes.Unimplemented,
			"grpc: Decompressor is not installed for grpc-encoding %q", shorten(e.received)))
		return
	}
	e.sent = e.received
}

// metadataOf returns the metadata in the header of a request. If they equal the metadata of the
// request before, both share them.
func (l *lastMetadata) metadataOf(fields []hpack.HeaderField) *received {
	n, size, same := 0, uint32(0), true
	for i := range fields {
		if !isMetadata(fields[i].Name) {
			continue
		}
		same = same && n < len(l.fields) && l.fields[n] == fields[i]
		size += fields[i].Size()
		n++
	}
	if same && n == len(l.fields) && l.received != nil {
		return l.received
	}
	clear(l.fields)
	l.fields, l.received = l.fields[:0], nil
	md := make(metadata.MD)
	// one allocation for the values of all names, repeated ones included
	all := make([]string, 0, n)
	for i := range fields {
		name, value := fields[i].Name, fields[i].Value
		if !isMetadata(name) {
			continue
		}
		if size <= maxKept {
			l.fields = append(l.fields, fields[i])
		}
		if strings.HasSuffix(name, "-bin") {
			b, _ := decodeBinary(value) // was checked
			value = string(b)
		}
		all = append(all, value)
		last := len(all) - 1
		switch before := md[name]; {
		case len(before) == 0:
			md[name] = all[last : last+1 : last+1]
		case last > 0 && &before[len(before)-1] == &all[last-1]: // same name as the field before
			md[name] = all[last-len(before) : last+1 : last+1]
		default:
			md[name] = append(before, value)
		}
	}
	if host, ok := md["host"]; ok {
		if len(md[":authority"]) == 0 {
			md[":authority"] = host
		}
		delete(md, "host")
	}
	m := &received{md, metadata.NewIncomingContext(l.base, md)}
	if size <= maxKept {
		l.received = m
	}
	return m
}

// isMetadata reports whether services see a header field with this name.
func isMetadata(name string) bool {
	switch name {
	case ":method", ":path", ":scheme", "te", "grpc-timeout", "grpc-encoding", "grpc-message",
		"grpc-message-type", "grpc-status":
		return false
	}
	return true
}

// subtype returns what follows application/grpc in a content type. ok is false if the type is
// another.
func subtype(value string) (sub string, ok bool) {
	rest, ok := strings.CutPrefix(value, contentType)
	switch {
	case !ok || rest != "" && rest[0] != '+' && rest[0] != ';':
		return "", false
	case rest == "":
		return "", true
	}
	return rest[1:], true
}

func decodeBinary(v string) ([]byte, error) {
	if len(v)%4 == 0 {
		return base64.StdEncoding.DecodeString(v)
	}
	return base64.RawStdEncoding.DecodeString(v)
}

var timeoutUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// parseTimeout parses a grpc-timeout: up to 8 digits and a unit.
func parseTimeout(v string) (time.Duration, error) {
	switch n := len(v); {
	case n < 2:
		return 0, fmt.Errorf("transport: timeout string is too short: %q", v)
	case n > 9:
		return 0, fmt.Errorf("transport: timeout string is too long: %q", shorten(v))
	}
	unit, ok := timeoutUnits[v[len(v)-1]]
	if !ok {
		return 0, fmt.Errorf("transport: timeout unit is not recognized: %q", v)
	}
	n, err := strconv.ParseUint(v[:len(v)-1], 10, 64)
	if err != nil {
		return 0, err
	}
	if n > math.MaxInt64/uint64(unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * unit, nil
}

// maxEcho is how many bytes of a client's text are repeated in the status of a rejected call.
const maxEcho = 500

// shorten cuts a client's text for a status, so that the answer is not larger than the request,
// even if the text is quoted.
func shorten(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	return s[:maxEcho] + "..."
}
