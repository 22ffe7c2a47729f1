package gateway

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/websocket"
)

// A request for a WebSocket is served as a POST: the client's messages are its body, and each line
// of the answer is sent as a message. A method with one request is called with the first message,
// and the WebSocket ends with the answer. So a browser, which cannot read an answer while it still
// sends a request, opens a watch or keeps a lease alive. The token is the subprotocol "Bearer,
// TOKEN" or the cookie token, because pages cannot set other headers. Package httpd rejects pages
// of origins that are not allowed, and removes the cookies of pages of other origins.

func wantsWebSocket(r *http.Request) bool {
	return httpguts.HeaderValuesContainsToken(r.Header["Connection"], "upgrade") &&
		httpguts.HeaderValuesContainsToken(r.Header["Upgrade"], "websocket")
}

func (g *Gateway) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	if !g.addSocket() {
		http.Error(w, "the member stops", http.StatusServiceUnavailable)
		return
	}
	defer g.sockets.all.Done()
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	h := &hijacking{ResponseWriter: w, ctx: ctx, gateway: g.open,
		release: func() bool { return true }}
	defer func() { h.release() }()
	websocket.Server{
		// Origins are checked by package httpd, and rights by the token.
		Handshake: func(c *websocket.Config, r *http.Request) error {
			c.Protocol = nil
			if strings.HasPrefix(r.Header.Get("Sec-WebSocket-Protocol"), "Bearer") {
				c.Protocol = []string{"Bearer"}
			}
			return nil
		},
		Handler: func(ws *websocket.Conn) {
			defer h.sock.release()
			g.converse(ctx, cancel, ws, h.sock, r)
		},
	}.ServeHTTP(h, r)
}

// converse serves a WebSocket until the call ends or the client disconnects, which cancels ctx.
func (g *Gateway) converse(ctx context.Context, cancel func(), ws *websocket.Conn, sock *socket,
	r *http.Request) {
	in, out := io.Pipe()
	// for both ends. The library would log another error than the end of the messages
	defer out.Close()
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, r.URL.String(), in)
	if err != nil {
		return
	}
	post.Host, post.RemoteAddr = r.Host, r.RemoteAddr
	for _, name := range []string{"Origin", "Referer"} {
		if v := r.Header.Get(name); v != "" {
			post.Header.Set(name, v)
		}
	}
	if token, ok := bearer(r); ok {
		post.Header.Set("Authorization", token)
	}
	go func() {
		// The handler must end with the client, and only a reader notices that the client is gone.
		// So the client's messages are read to the end, even when no one needs them.
		_, err := io.Copy(out, ws)
		if errors.Is(err, io.ErrClosedPipe) {
			_, err = io.Copy(io.Discard, ws)
		}
		if g.open.Err() != nil {
			err = nil // the member stops
		}
		out.CloseWithError(err) // io.EOF if err is nil
		cancel()
	}()
	lines := &lines{sock: sock, header: http.Header{}}
	b := newBody(lines, post, g.MaxBodyBytes)
	b.endless, b.single, b.unread = true, !streaming[post.URL.Path], func() { in.Close() }
	post.Body = b
	g.mux.ServeHTTP(lines, post)
	_ = lines.endMessage() // an error means that the client is gone
}

// bearer returns the value of the header Authorization that a client meant to send.
func bearer(r *http.Request) (string, bool) {
	token, ok := "", false
	if p := r.Header.Get("Sec-WebSocket-Protocol"); p != "" {
		ok = true
		if _, t, found := strings.Cut(p, "Bearer,"); found {
			token = "Bearer " + strings.Trim(t, " ")
		}
	}
	if c, err := r.Cookie("token"); err == nil {
		return "Bearer " + c.Value, true
	}
	return token, ok
}
