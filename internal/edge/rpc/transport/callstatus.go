package transport

import (
	"cmp"
	"context"
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"vigil/internal/edge/rpc/transport/h2"
)

// maxSend is the largest answer. Its length has 32 bits on the wire, and some languages can use
// only 31.
const maxSend = math.MaxInt32

// headers has the header fields of answers for one content type. empty is a whole answer without a
// message.
type headers struct{ plain, identity, empty *h2.Header }

func makeHeaders(subtype string) headers {
	fields := startFields(200, subtype)
	return headers{&h2.Header{Fields: fields, Common: true},
		&h2.Header{Fields: append(fields[:len(fields):len(fields)],
			hpack.HeaderField{Name: "grpc-encoding", Value: encoding.Identity}), Common: true},
		&h2.Header{Fields: statusFields(fields[:len(fields):len(fields)], nil)}}
}

// The headers for the usual content types, and the trailer of a successful call.
var (
	noSubtype    = makeHeaders("")
	protoSubtype = makeHeaders("proto")
	trailerOK    = &h2.Header{Fields: statusFields(nil, nil), Common: true}
)

// A browser or health check that speaks HTTP/2 to a gRPC address gets textHeader and noClientText.
var textHeader = &h2.Header{Fields: []hpack.HeaderField{{Name: ":status", Value: "415"},
	{Name: "content-type", Value: "text/plain; charset=utf-8"}}}

const noClientText = "this address serves gRPC only\n"

// startLen is the number of fields from startFields.
const startLen = 2

// startFields returns the first fields of every answer.
func startFields(http int, subtype string) []hpack.HeaderField {
	kind := contentType
	if subtype != "" {
		kind += "+" + subtype
	}
	return []hpack.HeaderField{{Name: ":status", Value: strconv.Itoa(http)},
		{Name: "content-type", Value: kind}}
}

// statusFields appends the fields of a status, which is nil for success.
func statusFields(fields []hpack.HeaderField, st *status.Status) []hpack.HeaderField {
	fields = append(fields,
		hpack.HeaderField{Name: "grpc-status", Value: strconv.Itoa(int(st.Code()))},
		hpack.HeaderField{Name: "grpc-message", Value: escapeMessage(st.Message())})
	if len(st.Proto().GetDetails()) > 0 {
		// without them the client still gets the code and the message
		if b, err := proto.Marshal(st.Proto()); err == nil {
			fields = append(fields,
				hpack.HeaderField{Name: "grpc-status-details-bin",
					Value: base64.RawStdEncoding.EncodeToString(b)})
		}
	}
	return fields
}

// answerHeader returns the header of the answer, with the handler's metadata. out may be nil.
func (h *callHeader) answerHeader(out *outMetadata) *h2.Header {
	head := h.plainHeader()
	if out != nil && len(out.header) > 0 {
		head = &h2.Header{Fields: append(head.Fields[:len(head.Fields):len(head.Fields)],
			out.header...)}
	}
	return head
}

// plainHeader returns the header without the handler's metadata.
func (h *callHeader) plainHeader() *h2.Header {
	usual, e := noSubtype, h.peekSpecial()
	switch {
	case e.subtype == "proto":
		usual = protoSubtype
	case e.subtype != "":
		fields := startFields(200, e.subtype)
		if e.sent != "" {
			fields = append(fields, hpack.HeaderField{Name: "grpc-encoding", Value: e.sent})
		}
		return &h2.Header{Fields: fields}
	}
	switch e.sent {
	case "":
		return usual.plain
	case encoding.Identity:
		return usual.identity
	}
	return &h2.Header{Fields: append(usual.plain.Fields[:startLen:startLen],
		hpack.HeaderField{Name: "grpc-encoding", Value: e.sent})}
}

// okTrailer returns the trailer of a successful answer. out may be nil.
func okTrailer(out *outMetadata) *h2.Header {
	if out == nil || len(out.trailer) == 0 {
		return trailerOK
	}
	return &h2.Header{Fields: append(statusFields(nil, nil), out.trailer...)}
}

// emptyAnswer returns a whole successful answer that has no message. out may be nil.
func (h *callHeader) emptyAnswer(out *outMetadata) *h2.Header {
	subtype := h.peekSpecial().subtype
	switch {
	case out != nil && len(out.trailer) > 0:
	case subtype == "":
		return noSubtype.empty
	case subtype == "proto":
		return protoSubtype.empty
	}
	fields := statusFields(startFields(200, subtype), nil)
	if out != nil {
		fields = append(fields, out.trailer...)
	}
	return &h2.Header{Fields: fields}
}

// errorTrailer returns the trailer for an error, and the whole answer for the case that nothing was
// sent before. out may be nil.
func (h *callHeader) errorTrailer(out *outMetadata, err error) (trailer, whole *h2.Header) {
	st, _ := status.FromError(err)
	http := 200
	if h.rejected != nil {
		http = cmp.Or(h.rejected.http, http)
	}
	fields := statusFields(startFields(http, h.peekSpecial().subtype), st)
	if out != nil {
		fields = append(fields, out.trailer...)
	}
	return &h2.Header{Fields: fields[startLen:]}, &h2.Header{Fields: fields}
}

// The trailer and the whole answer of a call whose deadline has passed.
var lateTrailer, lateAnswer = func() (trailer, whole *h2.Header) {
	fields := statusFields(startFields(200, ""), status.FromContextError(context.DeadlineExceeded))
	return &h2.Header{Fields: fields[startLen:]}, &h2.Header{Fields: fields}
}()

func lateHeaders() (trailer, whole *h2.Header) { return lateTrailer, lateAnswer }

// escapeMessage encodes the message of a status: it writes percent signs and bytes that are not
// printable ASCII as hexadecimal, and replaces invalid UTF-8.
func escapeMessage(s string) string {
	plain := true
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	if !utf8.ValidString(s) {
		var valid strings.Builder
		for _, r := range s { // an invalid byte is one replacement character
			valid.WriteRune(r)
		}
		s = valid.String()
	}
	const digits = "0123456789ABCDEF"
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			out.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			out.WriteByte(c)
		}
	}
	return out.String()
}
