package transport

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"
)

// A request is sent as raw frames.
type request struct {
	name   string
	path   string   // without the service
	fields []string // instead of or in addition to the usual ones; an empty value removes one
	body   [][]byte // the contents of DATA frames
	open   bool     // the client does not end its body
}

// message frames a text as the protocol wants it.
func message(s string) []byte {
	b, err := proto.Marshal(text(s))
	if err != nil {
		panic(err)
	}
	return frame(0, b)
}

func frame(flag byte, b []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{flag}, uint32(len(b))), b...)
}

func zipped(b []byte) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	_, _ = z.Write(b) // a buffer does not fail
	z.Close()
	return out.Bytes()
}

func one(s string) [][]byte { return [][]byte{message(s)} }

var requests = []request{
	{name: "unary", path: "Echo", body: one("hello")},
	{name: "empty text", path: "Echo", body: one("")},
	{name: "small frames", path: "Echo",
		body: slices.Collect(slices.Chunk(message("hello world"), 1))},
	{name: "large", path: "Echo",
		body: slices.Collect(slices.Chunk(message(strings.Repeat("x", 60_000)), 16000))},
	{name: "no message", path: "Echo"},
	{name: "two messages", path: "Echo", body: [][]byte{message("a"), message("b")}},
	{name: "two messages, no end", path: "Echo",
		body: [][]byte{message("a"), message("b")}, open: true},
	{name: "truncated message", path: "Echo", body: [][]byte{message("hello")[:7]}},
	{name: "truncated head", path: "Echo", body: [][]byte{message("hello")[:3]}},
	{name: "too large", path: "Echo", body: [][]byte{{0, 0, 10, 0, 0}}, open: true},
	{name: "not a text", path: "Echo", body: [][]byte{frame(0, []byte{0xff, 0xff})}},
	{name: "unknown flag", path: "Echo", body: [][]byte{frame(7, []byte{1})}},
	{name: "compressed without encoding", path: "Echo", body: [][]byte{frame(1, []byte{1})}},
	{name: "gzip", path: "Echo", fields: []string{"grpc-encoding", "gzip"},
		body: [][]byte{frame(1, zipped(message("hello")[5:]))}},
	{name: "gzip, not compressed", path: "Echo", fields: []string{"grpc-encoding", "gzip"},
		body: one("hello")},
	{name: "gzip, plain answer", path: "Plain", fields: []string{"grpc-encoding", "gzip"},
		body: one("hello")},
	{name: "plain answer", path: "Plain", body: one("hello")},
	{name: "identity", path: "Echo", fields: []string{"grpc-encoding", "identity"},
		body: one("hello")},
	{name: "invalid gzip", path: "Echo", fields: []string{"grpc-encoding", "gzip"},
		body: [][]byte{frame(1, []byte("no"))}},
	{name: "gzip bomb", path: "Echo", fields: []string{"grpc-encoding", "gzip"},
		body: [][]byte{frame(1, zipped(make([]byte, 10<<20)))}},
	{name: "unknown encoding", path: "Echo", fields: []string{"grpc-encoding", "br"},
		body: one("hello")},
	{name: "unknown encoding, no end", path: "Echo",
		fields: []string{"grpc-encoding", "br"}, open: true},
	{name: "unknown method", path: "Nothing", body: one("hello")},
	{name: "CVE-2026-33186, a path without a slash", path: "Echo",
		fields: []string{":path", testService + "/Echo"}, body: one("hello")},
	{name: "unknown service", fields: []string{":path", "/test.Nothing/Echo"}, body: one("hello")},
	{name: "malformed path", fields: []string{":path", "Echo"}, body: one("hello")},
	{name: "path without method", fields: []string{":path", "/Echo"}},
	{name: "subtype", path: "Echo", fields: []string{"content-type", "application/grpc+proto"},
		body: one("hello")},
	{name: "other subtype", path: "Echo", fields: []string{"content-type", "application/grpc;x"},
		body: one("hello")},
	{name: "subtype of an error", path: "Fail",
		fields: []string{"content-type", "application/grpc+proto"}, body: one("x")},
	{name: "wrong type", path: "Echo", fields: []string{"content-type", "text/plain"},
		body: one("hello")},
	{name: "wrong type, no end", path: "Echo",
		fields: []string{"content-type", "application/grpcx"}, open: true},
	{name: "no type", path: "Echo", fields: []string{"content-type", ""}, body: one("hello")},
	{name: "GET", path: "Echo", fields: []string{":method", "GET"}, body: one("hello")},
	{name: "host", path: "Metadata", fields: []string{":authority", "", "host", "example.com"},
		body: one("")},
	{name: "host and authority", path: "Metadata", fields: []string{"host", "example.com"},
		body: one("")},
	{name: "two hosts", path: "Metadata", fields: []string{"host", "a", "host", "b"},
		body: one("")},
	{name: "no host", path: "Metadata", fields: []string{":authority", ""}, body: one("")},
	{name: "timeout", path: "Metadata", fields: []string{"grpc-timeout", "5H"}, body: one("")},
	{name: "huge timeout", path: "Metadata", fields: []string{"grpc-timeout", "99999999H"},
		body: one("")},
	{name: "timeout without digits", path: "Metadata", fields: []string{"grpc-timeout", "S"},
		body: one("")},
	{name: "long timeout", path: "Metadata", fields: []string{"grpc-timeout", "123456789S"},
		body: one("")},
	{name: "timeout without unit", path: "Metadata", fields: []string{"grpc-timeout", "12345"},
		body: one("")},
	{name: "negative timeout", path: "Metadata", fields: []string{"grpc-timeout", "-5S"},
		body: one("")},
	{name: "no time", path: "Metadata", fields: []string{"grpc-timeout", "0n"}, body: one("")},
	{name: "metadata", path: "Metadata", body: one(""),
		fields: []string{"a", "1", "a", "2", "b-bin", "AAEC", "c-bin", "AA==", "d-bin", "AA",
			"user-agent", "x", "te", "trailers", "grpc-accept-encoding", "gzip",
			"grpc-message", "x"}},
	{name: "metadata of the answer", path: "Meta", body: one("x")},
	{name: "metadata of an error", path: "Meta", body: one("fail")},
	{name: "metadata in the trailer of an error", path: "Meta", body: one("trailer")},
	{name: "metadata of answers", path: "Metas", body: one("abc")},
	{name: "metadata without answers", path: "Metas", body: one("")},
	{name: "invalid binary metadata", path: "Metadata", fields: []string{"a-bin", "!"},
		body: one("")},
	{name: "status", path: "Fail", body: one("\u00e4")},
	{name: "status of a context", path: "Fail", body: one("context")},
	{name: "other error", path: "Fail", body: one("plain")},
	{name: "details", path: "Fail", body: one("details")},
	{name: "chat", path: "Chat",
		body: [][]byte{message("a"), message("b"), append(message("c"), message("d")...)}},
	{name: "chat without words", path: "Chat"},
	{name: "chat that the server ends", path: "Chat",
		body: [][]byte{message("a"), message("quit")}, open: true},
	{name: "chat that fails", path: "Chat",
		body: [][]byte{message("a"), message("fail")}, open: true},
	{name: "chat that fails at once", path: "Chat", body: one("fail"), open: true},
	{name: "invalid message in a chat", path: "Chat",
		body: [][]byte{message("a"), frame(0, []byte{0xff})}, open: true},
	{name: "truncated chat", path: "Chat", body: [][]byte{message("a"), message("hello")[:6]}},
	{name: "large message in a chat", path: "Chat",
		body: [][]byte{message("a"), {0, 0, 10, 0, 0}}, open: true},
	{name: "gzip chat", path: "Chat", fields: []string{"grpc-encoding", "gzip"},
		body: [][]byte{frame(1, zipped(message("hello")[5:])), message("b")}},
	{name: "many", path: "Many", body: one("0123456789")},
	{name: "many without request", path: "Many"},
	{name: "sum", path: "Sum", body: [][]byte{message("abc"), message("de")}},
}

// exchange sends a request on a new connection and returns what comes back on its stream.
func (r *request) exchange(t *testing.T, addr string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fr := http2.NewFramer(nc, nc)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(nc, http2.ClientPreface)
	must(err)
	must(fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30}))
	must(fr.WriteWindowUpdate(0, 1<<30))
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range r.header() {
		must(enc.WriteField(f))
	}
	const id = 1
	must(fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndHeaders: true,
		EndStream: len(r.body) == 0 && !r.open, BlockFragment: block.Bytes()}))
	for i, b := range r.body {
		must(fr.WriteData(id, i == len(r.body)-1 && !r.open, b))
	}
	var out strings.Builder
	var data []byte
	pinged := false
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return fmt.Sprint(out.String(), "lost: ", err)
		}
		ended := false
		switch f := f.(type) {
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				fmt.Fprintf(&out, "%s: %s\n", h.Name, h.Value)
			}
			if ended = f.StreamEnded(); ended {
				fmt.Fprintf(&out, "data %x\nend\n", unzip(data))
			}
		case *http2.DataFrame:
			data = append(data, f.Data()...)
		case *http2.RSTStreamFrame:
			fmt.Fprintln(&out, "reset:", f.ErrCode)
			ended = true
		case *http2.GoAwayFrame:
			fmt.Fprintln(&out, "GOAWAY:", f.ErrCode)
		case *http2.PingFrame:
			if f.IsAck() && pinged {
				return out.String()
			}
			must(fr.WritePing(true, f.Data))
		case *http2.SettingsFrame:
			if !f.IsAck() {
				must(fr.WriteSettingsAck())
			}
		}
		if ended && !pinged { // what follows the end was written before the answer to this
			pinged = true
			must(fr.WritePing(false, [8]byte{1}))
		}
	}
}

// unzip decompresses the first message, whose compressed bytes may differ.
func unzip(b []byte) []byte {
	if len(b) < 5 || b[0] != 1 {
		return b
	}
	n := 5 + binary.BigEndian.Uint32(b[1:])
	z, err := gzip.NewReader(bytes.NewReader(b[5:n]))
	if err != nil {
		return b
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		return b
	}
	return slices.Concat([]byte("gzip"), plain, unzip(b[n:]))
}

// header returns the fields of a request.
func (r *request) header() []hpack.HeaderField {
	fields := []hpack.HeaderField{{Name: ":method", Value: "POST"},
		{Name: ":scheme", Value: "http"}, {Name: ":path", Value: "/" + testService + "/" + r.path},
		{Name: ":authority", Value: "test"}, {Name: "content-type", Value: "application/grpc"}}
	usual := len(fields)
	for i := 0; i < len(r.fields); i += 2 {
		at := slices.IndexFunc(fields[:min(usual, len(fields))],
			func(f hpack.HeaderField) bool { return f.Name == r.fields[i] })
		switch {
		case at < 0:
			fields = append(fields, hpack.HeaderField{Name: r.fields[i], Value: r.fields[i+1]})
		case r.fields[i+1] == "":
			fields = slices.Delete(fields, at, at+1)
			usual--
		default:
			fields[at].Value = r.fields[i+1]
		}
	}
	return fields
}

// TestSameAnswers sends the same frames to the server of grpc-go and to ours: what comes back is
// the same.
func TestSameAnswers(t *testing.T) {
	_, theirs := startServer(t, false, nil)
	_, ours := startServer(t, true, nil)
	for _, r := range requests {
		t.Run(r.name, func(t *testing.T) {
			want, got := r.exchange(t, theirs), r.exchange(t, ours)
			if !r.open {
				// A reset after both sides have ended has no meaning. grpc-go sends one if it
				// decides before the body arrives.
				want, got = strings.TrimSuffix(want, "reset: NO_ERROR\n"),
					strings.TrimSuffix(got, "reset: NO_ERROR\n")
			}
			if got != want {
				t.Errorf("answered with\n%swant\n%s", got, want)
			}
		})
	}
}
