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

// lastMetadata is the metadata of the last request of a connection. A client mostly sends the same with each request, and
// nothing changes metadata that were received.
type lastMetadata struct {
	base   context.Context // without metadata
	fields []hpack.HeaderField
	*received
}

// received is the metadata of a request. Calls with the same share it.
type received struct {
	md     metadata.MD
	values context.Context // with the metadata
}

// maxKept is the size in bytes up to which metadata are kept for the next request.
const maxKept = 16 << 10

// readHeader reads what the header of a request says about the call. It notes how the call is rejected, if it is.
func (c *call) readHeader(r *h2.Request) {
	kind, valid, authority, hosts := "", false, 0, 0
	var bad error
	for i := range r.Fields {
		switch f := &r.Fields[i]; f.Name {
		case "content-type":
			if sub, ok := subtype(f.Value); ok {
				if valid = true; sub != "" {
					c.makeSpecial().subtype = sub
				}
			} else {
				kind = f.Value
			}
		case "grpc-encoding":
			c.makeSpecial().received = f.Value
		case "grpc-timeout":
			d, err := parseTimeout(f.Value)
			if err != nil {
				bad = status.Errorf(codes.Internal, "malformed grpc-timeout: %v", err)
			}
			c.timeout, c.hasTimeout = d, true
		case ":authority":
			authority++
		case "host":
			hosts++
		default:
			if strings.HasSuffix(f.Name, "-bin") {
				if _, err := decodeBinary(f.Value); err != nil {
					bad = status.Errorf(codes.Internal, "malformed binary metadata %q in header %q: %v", short(f.Value), short(f.Name), err)
				}
			}
		}
	}
	reject := func(http int, err error) { c.rejected = &rejection{err: err, http: http} }
	switch {
	case authority > 1 || hosts > 1:
		reject(400, status.Errorf(codes.Internal, "num values of :authority: %v, num values of host: %v, both must only have 1 value as per HTTP/2 spec", authority, hosts))
	case !valid:
		reject(415, status.Errorf(codes.InvalidArgument, "invalid gRPC request content-type %q", short(kind)))
		c.rejected.foreign = !strings.HasPrefix(kind, contentType)
		c.rejected.noType = kind == ""
		c.rejected.asText = kind == "" && r.Method == "GET"
	case bad != nil:
		reject(400, bad)
	case authority == 0 && hosts == 0:
		reject(400, status.Error(codes.Internal, "no host or :authority header present"))
	case r.Method != "POST":
		reject(405, status.Errorf(codes.Internal, "Received a HEADERS frame with :method %q which should be POST", short(r.Method)))
	case c.hasTimeout && c.timeout <= 0:
		reject(200, status.Error(codes.DeadlineExceeded, "context deadline exceeded"))
	}
	if c.rejected != nil {
		return
	}
	c.metadata = c.conn.last.of(r.Fields)
	if c.method = c.conn.server.methods[r.Path]; c.method == nil {
		c.rejected = &rejection{err: status.Error(codes.Unimplemented, c.conn.server.unknown(r.Path))}
		return
	}
	c.checkEncoding()
}

// checkEncoding chooses how messages are decompressed, and how answers are compressed: in the same way.
func (c *call) checkEncoding() {
	if c.receivesPlain() {
		return
	}
	e := c.special
	if e.compressor = encoding.GetCompressor(e.received); e.compressor == nil {
		c.rejected = &rejection{err: status.Errorf(codes.Unimplemented, "grpc: Decompressor is not installed for grpc-encoding %q", short(e.received))}
		return
	}
	e.sent = e.received
}

// of returns the metadata in the header of a request.
func (l *lastMetadata) of(fields []hpack.HeaderField) *received {
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
	all := make([]string, 0, n) // one allocation for the values of all names, also of one that is repeated
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
		case last > 0 && &before[len(before)-1] == &all[last-1]: // the name of the field before
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

// isMetadata reports whether services see a field of the header.
func isMetadata(name string) bool {
	switch name {
	case ":method", ":path", ":scheme", "te", "grpc-timeout", "grpc-encoding", "grpc-message", "grpc-message-type", "grpc-status":
		return false
	}
	return true
}

// subtype returns what follows the type of gRPC in a content type, and whether it is one.
func subtype(value string) (string, bool) {
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

var timeoutUnits = map[byte]time.Duration{'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond}

// parseTimeout parses a grpc-timeout: up to 8 digits and a unit.
func parseTimeout(v string) (time.Duration, error) {
	switch n := len(v); {
	case n < 2:
		return 0, fmt.Errorf("transport: timeout string is too short: %q", v)
	case n > 9:
		return 0, fmt.Errorf("transport: timeout string is too long: %q", short(v))
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

// maxEcho is how many bytes of a text of the client are in the status of a call that is rejected.
const maxEcho = 500

// short returns a text that may be in a status: an answer is not larger than its request, however that is quoted.
func short(s string) string {
	if len(s) <= maxEcho {
		return s
	}
	return s[:maxEcho] + "..."
}
