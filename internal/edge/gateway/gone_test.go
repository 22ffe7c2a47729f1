package gateway

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/websocket"
	"google.golang.org/grpc"
)

// held are services whose calls last until their contexts end.
type held struct{ begun, ended chan string }

func (h held) Invoke(ctx context.Context, method string, _, _ any, _ ...grpc.CallOption) error {
	h.begun <- method
	<-ctx.Done()
	h.ended <- method
	return ctx.Err()
}

func (h held) NewStream(ctx context.Context, _ *grpc.StreamDesc, method string,
	_ ...grpc.CallOption) (grpc.ClientStream, error) {
	h.begun <- method
	context.AfterFunc(ctx, func() { h.ended <- method })
	return &endingStream{ctx: ctx}, nil
}

// TestClientGone: a call ends with the client of its WebSocket, whatever the client has sent that
// the call does not read.
func TestClientGone(t *testing.T) {
	const wait = time.Minute
	h := held{make(chan string, 1), make(chan string, 1)}
	g, err := New(Config{Conn: h, MaxBodyBytes: 100})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(g)
	defer s.Close()
	defer g.Close()
	for _, path := range []string{"lock/lock", "election/campaign", "election/observe",
		"maintenance/snapshot", "kv/put", "watch", "lease/keepalive"} {
		for name, messages := range map[string][]string{
			"one message": {`{}`}, "two messages": {`{}`, `{}`}, "a line feed": {"{}\n", "\n"},
			"many":          strings.Split(strings.Repeat("{},", 99)+"{}", ","),
			"a bad message": {`{}`, `nonsense`, `{}`},
			"a large one": {`{}`, strings.Repeat(" ", 1000),
				`{"more":"` + strings.Repeat("x", 1000) + `"}`, `{}`},
		} {
			ws, err := websocket.Dial("ws"+strings.TrimPrefix(s.URL, "http")+"/v3/"+path, "", s.URL)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				if _, err := ws.Write([]byte(m)); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case <-h.begun:
			case <-time.After(wait):
				t.Fatalf("%s, %s: the call has not begun", path, name)
			}
			ws.Close()
			select {
			case <-h.ended:
			case <-time.After(wait):
				t.Fatalf("%s, %s: the call lasts after its client", path, name)
			}
		}
	}
}
