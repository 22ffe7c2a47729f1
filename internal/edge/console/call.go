package console

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"vigil/internal/kv"
)

// failure is an error in the form that the browser receives.
type failure struct {
	Status int    `json:"-"`
	Code   string `json:"code"`
	Text   string `json:"error"`
	// Next is the reader's next step.
	Next string `json:"next,omitempty"`
	// Current is the newest state of a key that has changed since it was read.
	Current any `json:"current,omitempty"`
	// Imported is the part of an import that was done before the failure.
	Imported *imported `json:"imported,omitempty"`
}

// Error implements error.
func (f *failure) Error() string { return f.Text }

// badRequest returns the error of a request with a mistake.
func badRequest(format string, args ...any) error {
	return &failure{Status: http.StatusBadRequest, Code: "request",
		Text: fmt.Sprintf(format, args...)}
}

// known lists the errors of the API that have their own advice.
var known = []struct {
	text   string
	status int
	code   string
	next   string
}{
	{kv.ErrInvalidAuthToken.Error(), http.StatusUnauthorized, "login",
		"log in again: the session has expired"},
	{"user name is empty", http.StatusUnauthorized, "login", "log in"},
	{"permission denied", http.StatusForbidden, "denied",
		"ask an administrator for a role with this permission"},
	{"required revision has been compacted", http.StatusGone, "compacted",
		"choose a newer revision"},
	{"required revision is a future revision", http.StatusBadRequest, "future",
		"choose an older revision, or wait until this member has applied it"},
	{"database space exceeded", http.StatusInsufficientStorage, "space",
		"delete or compact, or raise --quota-backend-bytes; then disarm the alarm"},
	{"request is too large", http.StatusRequestEntityTooLarge, "large",
		"use a smaller value, or raise --max-request-bytes"},
	{"not leader", http.StatusConflict, "leader", "open the console of the leader"},
	{"no leader", http.StatusServiceUnavailable, "leaderless",
		"wait for an election, and look at the overview: it names the members that do not answer"},
	{"timed out", http.StatusGatewayTimeout, "timeout",
		"look at the overview: a member may be down or slow"},
}

// advice has the next steps for errors without their own advice, by code.
var advice = map[string]string{
	"request":  "correct it, and try again",
	"large":    "use less in one request",
	"conflict": "read again, and try again",
	"internal": "look for the error in the log of the member",
}

// describe converts an error to the form that the browser receives, with advice.
func describe(err error) *failure {
	f := *classify(err)
	f.Next = cmp.Or(f.Next, advice[f.Code])
	return &f
}

// classify returns an error with its status and code.
func classify(err error) *failure {
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	var large *http.MaxBytesError
	if errors.As(err, &large) {
		return &failure{Status: http.StatusRequestEntityTooLarge, Code: "large",
			Text: fmt.Sprintf("the request has more than %d bytes", large.Limit)}
	}
	st, _ := status.FromError(err)
	for _, k := range known {
		if strings.Contains(st.Message(), k.text) {
			return &failure{Status: k.status, Code: k.code, Text: st.Message(), Next: k.next}
		}
	}
	switch st.Code() {
	case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.AlreadyExists,
		codes.OutOfRange:
		return &failure{Status: http.StatusBadRequest, Code: "request", Text: st.Message()}
	case codes.DeadlineExceeded:
		return &failure{Status: http.StatusGatewayTimeout, Code: "timeout", Text: st.Message(),
			Next: "look at the overview: a member may be down or slow"}
	case codes.ResourceExhausted, codes.Unavailable:
		return &failure{Status: http.StatusServiceUnavailable, Code: "unavailable",
			Text: st.Message(), Next: "try again in a moment"}
	}
	return &failure{Status: http.StatusInternalServerError, Code: "internal", Text: st.Message()}
}

func writeError(w http.ResponseWriter, err error) {
	f := describe(err)
	writeJSON(w, f.Status, f)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(b)
}

// request is a request to the API. ctx is for calls: it has the browser's credentials, and ends
// with the request.
type request struct {
	*http.Request
	ctx context.Context
	who credentials
}

// callTimeout limits requests that are not streams.
const callTimeout = 30 * time.Second

// call serves a path of the API: the response is the handler's result.
func (c *Console) call(method, path string, serve func(*request) (any, error)) {
	c.api.HandleFunc(method+" "+apiPrefix+path, func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), callTimeout)
		defer cancel()
		q, local := c.request(ctx, cancel, r), &localData{}
		if method == http.MethodGet {
			q.ctx = context.WithValue(q.ctx, localKey{}, local)
		}
		out, err := serve(q)
		if err != nil {
			writeError(w, err)
			return
		}
		local.noteInHeader(w.Header())
		writeJSON(w, http.StatusOK, out)
	})
}

// request returns a request with the credentials for its calls.
func (c *Console) request(ctx context.Context, cancel func(), r *http.Request) *request {
	who := c.credentials(r)
	ctx = c.WithCaller(ctx, browser(r.RemoteAddr), r.TLS, cancel)
	if who.Token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, rpctypes.TokenFieldNameGRPC, who.Token)
	}
	return &request{r, ctx, who}
}

// browser returns the address of a browser, for lists of watchers.
type browser string

func (browser) Network() string  { return "tcp" }
func (b browser) String() string { return "console " + string(b) }

// bytes returns a parameter that contains base64.
func (r *request) bytes(name string) ([]byte, error) {
	b, err := base64.StdEncoding.DecodeString(r.URL.Query().Get(name))
	if err != nil {
		return nil, badRequest("%s: %v", name, err)
	}
	if len(b) > maxKey {
		return nil, badRequest("%s has %d bytes, at most %d", name, len(b), maxKey)
	}
	return b, nil
}

// maxKey limits a key in the URL: http.Server accepts URLs of up to 1 MiB.
const maxKey = 64 << 10

// number returns a parameter between 0 and most, or preset if the parameter is missing.
func (r *request) number(name string, preset, most int64) (int64, error) {
	s := r.URL.Query().Get(name)
	if s == "" {
		return preset, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 || n > most {
		return 0, badRequest("%s=%q: want a number from 0 to %d", name, s, most)
	}
	return n, nil
}

// id returns the number of a member or lease, given in hexadecimal digits.
func id(name, s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	if err != nil {
		return 0, badRequest("%s %q is not a number in hexadecimal digits", name, s)
	}
	return n, nil
}

// decode reads the body, which is one JSON value.
func (r *request) decode(into any) error {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return err
		}
		return badRequest("the body was not received: %v", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return badRequest("the body: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return badRequest("the body has more than one value")
	}
	return nil
}
