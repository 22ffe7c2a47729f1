// Package serve answers the calls of package bucket's client of the program vigil-bucket: a bucket
// as HTTP/1.1 on a Unix socket.
//
//	PUT    /object/KEY                        201, or an error; the body has a length
//	GET    /object/KEY?offset=N               200 with the bytes, and an error after some of them as a trailer
//	DELETE /object/KEY                        204
//	GET    /list?prefix=P&after=A&limit=N     200 with a JSON array of key, size and modified
//
// An error has the status of its kind and one line of text without secrets.
package serve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"vigil/internal/bucket"
)

// maxText is the longest text of an error.
const maxText = 500

// Run serves a bucket on a listener until ctx ends.
func Run(ctx context.Context, l net.Listener, b bucket.Bucket) error {
	s := &http.Server{Handler: handler(b), ReadHeaderTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func handler(b bucket.Bucket) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /object/{key...}",
		func(w http.ResponseWriter, r *http.Request) { put(w, r, b) })
	mux.HandleFunc("GET /object/{key...}",
		func(w http.ResponseWriter, r *http.Request) { get(w, r, b) })
	mux.HandleFunc("DELETE /object/{key...}", func(w http.ResponseWriter, r *http.Request) {
		if err := b.Delete(r.Context(), r.PathValue("key")); err != nil {
			fail(w, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /list", func(w http.ResponseWriter, r *http.Request) { list(w, r, b) })
	return mux
}

func put(w http.ResponseWriter, r *http.Request, b bucket.Bucket) {
	n := r.ContentLength
	if n < 0 || n > bucket.MaxObject {
		http.Error(w, "an object without a length, or too large", http.StatusRequestEntityTooLarge)
		return
	}
	data := make([]byte, n)
	if _, err := io.ReadFull(r.Body, data); err != nil {
		fail(w, err)
		return
	}
	if err := b.Put(r.Context(), r.PathValue("key"), data); err != nil {
		fail(w, err)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

func get(w http.ResponseWriter, r *http.Request, b bucket.Bucket) {
	offset, err := strconv.ParseInt(r.FormValue("offset"), 10, 64)
	if err != nil || offset < 0 {
		http.Error(w, "offset", http.StatusBadRequest)
		return
	}
	body, err := b.Get(r.Context(), r.PathValue("key"), offset)
	if err != nil {
		fail(w, err)
		return
	}
	defer body.Close()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Trailer", bucket.Trailer)
	if _, err := io.Copy(w, body); err != nil {
		// the client must not take the beginning for the whole
		w.Header().Set(bucket.Trailer, Text(err))
	}
}

func list(w http.ResponseWriter, r *http.Request, b bucket.Bucket) {
	limit, err := strconv.Atoi(r.FormValue("limit"))
	if err != nil {
		http.Error(w, "limit", http.StatusBadRequest)
		return
	}
	objects, err := b.List(r.Context(), r.FormValue("prefix"), r.FormValue("after"), limit)
	if err != nil {
		fail(w, err)
		return
	}
	if objects == nil {
		objects = []bucket.Object{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(objects)
}

// fail answers with an error.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusBadGateway
	for _, k := range bucket.Statuses {
		if errors.Is(err, k.Err) {
			status = k.Status
		}
	}
	http.Error(w, Text(err), status)
}

var (
	// query matches the parameters of a URL, which may have signatures and tokens.
	query = regexp.MustCompile(`\?[^\s"']+`)
	// secrets are the names of variables whose values may be secret.
	secrets = regexp.MustCompile(`(?i)secret|token|password|_key|sas|connection_string|credentials`)
)

// Text returns the text of an error in one line of limited length. It omits the parameters of URLs
// and the values of environment variables with credentials.
func Text(err error) string {
	text := query.ReplaceAllString(strings.Join(strings.Fields(err.Error()), " "), "?...")
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		if len(value) >= 8 && secrets.MatchString(name) {
			text = strings.ReplaceAll(text, value, "...")
		}
	}
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "..."
	}
	return text
}

// Main is the program: it reads the URL of a bucket from the first line of its input, opens the
// bucket, listens on a socket, and serves until its input ends, at the latest with the process that
// started it. It prints "ready", or a line with the error, which it returns too.
func Main(ctx context.Context, socket string, in io.Reader, out io.Writer,
	open func(ctx context.Context, url string) (bucket.Bucket, error)) (err error) {
	defer func() {
		if err != nil {
			err = errors.New(Text(err))
			_, _ = io.WriteString(out, err.Error()+"\n")
		}
	}()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address, err := firstLine(in)
	if err != nil {
		return err
	}
	b, err := open(ctx, address)
	if err != nil {
		return err
	}
	defer b.Close()
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	// The process that made the directory of the socket may have been killed. Closing the listener
	// removes the socket.
	if dir := filepath.Dir(socket); strings.HasPrefix(filepath.Base(dir), bucket.DirPrefix) {
		defer os.Remove(dir)
	}
	defer l.Close()
	go func() {
		_, _ = io.Copy(io.Discard, in)
		cancel()
	}()
	if _, err := io.WriteString(out, bucket.Ready+"\n"); err != nil {
		return err
	}
	return Run(ctx, l, b)
}

// firstLine reads a line of limited length byte by byte, so that nothing after it is read.
func firstLine(in io.Reader) (string, error) {
	var line []byte
	b := make([]byte, 1)
	for len(line) < 8<<10 {
		if _, err := io.ReadFull(in, b); err != nil {
			return "", errors.New("the first line of the input is the URL of a bucket")
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", errors.New("the URL of the bucket is too long")
}
