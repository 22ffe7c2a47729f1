package transport

import (
	"context"
	"log/slog"
	"testing"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"vigil/internal/allocs"
	"vigil/internal/edge/rpc/transport/h2"
	"vigil/internal/edge/rpc/wire"
)

func hot() map[string]func() {
	codec := NewCodec(slog.New(slog.DiscardHandler), new(noCounter), new(noCounter))
	server := NewServer(Options{Services: testServices(), Codec: codec,
		MaxMessageBytes: maxTestMessage})
	conn := &clientConn{server: server, values: context.Background()}
	conn.last.base = conn.values
	r := request{path: "Echo", fields: []string{"user-agent", "test", "grpc-timeout", "5S"}}
	req := h2.Request{Method: "POST", Path: "/" + testService + "/Echo",
		Fields: append([]hpack.HeaderField(nil), r.header()...)}
	responses := []wire.WatchResponse{{Also: make([]int64, 99),
		Events: [][]byte{make([]byte, 300)}}}
	for i := range responses[0].Also {
		responses[0].Also[i] = int64(1 + i)
	}
	buf := make([]byte, 0, maxPrompt+messageHead)
	answer := wrapperspb.String("an answer")
	return map[string]func(){
		"header of a request": func() {
			if h := conn.readHeader(&req); h.rejected != nil {
				panic(h.rejected.err)
			}
		},
		"100 responses for watchers": func() {
			out, _, err := frameWatch(responses)
			if err != nil {
				panic(err)
			}
			out.Free()
		},
		"small answer": func() {
			if _, ok := codec.appendSmall(buf, answer, maxPrompt); !ok {
				panic("not small")
			}
		},
	}
}

func BenchmarkHot(b *testing.B) { allocs.Benchmark(b, hot()) }

//vigil:norace
func TestAllocations(t *testing.T) { allocs.Test(t, "transport", hot()) }
