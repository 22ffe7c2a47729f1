package diff

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Request is a plain HTTP request.
type Request struct {
	// Method is POST if there is a Body and GET otherwise, unless it is set.
	Method, Path, Body string
	// Header holds names and values in turn.
	Header []string
	// Lines is how many lines of the answer are waited for if it is a stream; then the client goes
	// away.
	Lines int
	// Patience bounds the request, callTimeout if it is 0.
	Patience time.Duration
	// Chunked sends a body whose length is not known beforehand.
	Chunked bool
}

func (r Request) method() string {
	switch {
	case r.Method != "":
		return r.Method
	case r.Body != "" || r.Lines > 0:
		return http.MethodPost
	}
	return http.MethodGet
}

func (r Request) String() string {
	body := r.Body
	if len(body) > 120 {
		body = fmt.Sprintf("%s...(%d bytes)", body[:120], len(body))
	}
	s := strings.TrimSpace(fmt.Sprintf("%s %s %s", r.method(), r.Path, body))
	if len(r.Header) > 0 {
		s += fmt.Sprintf(" header %q", r.Header)
	}
	return s
}

// Answer is what came of a request, in a form that can be compared.
type Answer struct {
	Status  int
	Headers []string
	// Body is that of the answer. If it is JSON, fields are sorted, and what may differ between
	// servers is replaced by a mark.
	Body string
}

// headersThatMatter are the ones that clients look at.
var headersThatMatter = []string{
	"Access-Control-Allow-Headers", "Access-Control-Allow-Methods",
	"Access-Control-Allow-Origin", "Allow",
	"Content-Type", "Grpc-Metadata-Content-Type", "Location", "Www-Authenticate",
	"X-Content-Type-Options",
	"X-Etcd-Cluster-Id",
}

// client makes a connection for each request, so that the end of one does not touch another.
var client = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// Ask sends a request to an address.
func (s *Side) Ask(ctx context.Context, addr string, r Request) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Patience, callTimeout))
	defer cancel()
	var body io.Reader = strings.NewReader(r.Body)
	if r.Chunked {
		body = io.MultiReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method(), "http://"+addr+r.Path, body)
	if err != nil {
		return Answer{}, err
	}
	for i := 0; i < len(r.Header); i += 2 {
		if r.Header[i] == "Host" {
			req.Host = r.Header[i+1]
		}
		req.Header.Add(r.Header[i], r.Header[i+1])
	}
	res, err := client.Do(req)
	if err != nil {
		return Answer{}, err
	}
	defer res.Body.Close()
	out := Answer{Status: res.StatusCode}
	for _, name := range headersThatMatter {
		for _, v := range res.Header.Values(name) {
			out.Headers = append(out.Headers, name+": "+s.mark(name, v))
		}
	}
	if r.Lines == 0 {
		b, err := io.ReadAll(res.Body)
		out.Body = s.canonical(b)
		return out, err
	}
	in := bufio.NewReader(res.Body)
	for range r.Lines {
		line, err := in.ReadBytes('\n')
		out.Body += s.canonical(line) + "\n"
		if err != nil {
			return out, nil // what came is compared
		}
	}
	return out, nil
}

// canonical sorts the fields of JSON and marks what may differ; everything else it leaves as it is.
func (s *Side) canonical(b []byte) string {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil || d.More() {
		return string(b)
	}
	if _, ok := v.(json.Number); ok {
		return string(b)
	}
	out, err := json.Marshal(s.normalize("", v))
	if err != nil {
		return string(b)
	}
	return string(out)
}

func (s *Side) normalize(name string, v any) any {
	switch v := v.(type) {
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(v)) {
			v[k] = s.normalize(k, v[k])
		}
	case []any:
		for i := range v {
			v[i] = s.normalize(name, v[i])
		}
	case json.Number:
		return s.mark(name, v.String())
	case string:
		return s.mark(name, v)
	}
	return v
}

// mark replaces what a server calls itself, and sizes and positions of the log that are not zero.
func (s *Side) mark(name, v string) string {
	switch name {
	case "cluster_id", "member_id", "leader", "ID", "id", "targetID":
		switch v {
		case strconv.FormatUint(s.ids.cluster, 10), strconv.FormatUint(s.ids.member, 10):
			return own
		}
	case "X-Etcd-Cluster-Id":
		if v == strconv.FormatUint(s.ids.cluster, 16) {
			return own
		}
	case "raft_term", "raftTerm", "raftIndex", "raftAppliedIndex", "dbSize", "dbSizeInUse":
		if v != "0" {
			return nonzero
		}
	case "message", "error":
		// The protobuf library writes a space of either kind into its errors, on purpose.
		return strings.ReplaceAll(v, "\u00a0", " ")
	}
	return v
}

// HTTP sends a request to both sides, notes the differences and returns etcd's answer.
func (p *Pair) HTTP(r Request) Answer {
	p.t.Helper()
	return p.http("", r, p.Etcd.Server.Addr(), p.Subject.Server.Addr())
}

// PeerHTTP does that on the peer ports.
func (p *Pair) PeerHTTP(r Request) Answer {
	p.t.Helper()
	return p.http("peer ", r, p.Etcd.Server.PeerAddr(), p.Subject.Server.PeerAddr())
}

func (p *Pair) http(port string, r Request, etcd, subject string) Answer {
	p.t.Helper()
	var want, got Answer
	var errs [2]error
	done := make(chan struct{})
	go func() {
		defer close(done)
		want, errs[0] = p.Etcd.Ask(p.t.Context(), etcd, r)
	}()
	got, errs[1] = p.Subject.Ask(p.t.Context(), subject, r)
	<-done
	p.Calls++
	found := want.compare(got)
	if w, g := errText(errs[0]), errText(errs[1]); w != g {
		found = append(found, Field{"error", w, g})
	}
	p.note("HTTP "+port+r.String(), found)
	return want
}

// compare returns what is not the same in another answer.
func (a Answer) compare(got Answer) (found []Field) {
	add := func(path, want, got string) {
		if want != got {
			found = append(found, Field{path, want, got})
		}
	}
	add("status", strconv.Itoa(a.Status), strconv.Itoa(got.Status))
	add("headers", strings.Join(a.Headers, "\n"), strings.Join(got.Headers, "\n"))
	add("body", a.Body, got.Body)
	return found
}

// errText stands for any error: its text is the client's.
func errText(err error) string {
	if err != nil {
		return "error"
	}
	return ""
}
