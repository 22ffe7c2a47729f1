// Package probe reads the pages of members over HTTP: metrics, watchers, the clock. It also reads
// etcd's members, as far as they have these pages.
package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"vigil/internal/debugpage"
	"vigil/internal/health"
)

// ErrNotFound reports that the member does not have the page.
var ErrNotFound = errors.New("the member has no such page")

// Limits of answers. Decoding one takes a few dozen times its size in memory.
const (
	maxAnswer   = 4 << 20
	maxMetrics  = 16 << 20
	maxWatchers = 256 << 20 // several hundred thousand
)

// Member is the HTTP server of one member. It is safe for concurrent use.
type Member struct {
	// Endpoint is the address that New was called with.
	Endpoint string

	base, token string
	http        *http.Client
}

// New returns the member at an endpoint that the client library has validated. secure is nil for
// endpoints without TLS. token authenticates requests; it may be empty.
func New(endpoint, token string, secure *tls.Config, timeout time.Duration) *Member {
	kind, rest, ok := strings.Cut(endpoint, "://")
	if !ok {
		if path, unix := strings.CutPrefix(endpoint, "unix:"); unix {
			kind, rest = "unix", path
		} else {
			kind, rest = "", endpoint
		}
	}
	t := &http.Transport{TLSClientConfig: secure.Clone(), MaxIdleConnsPerHost: 1}
	host := strings.TrimSuffix(rest, "/")
	if strings.HasPrefix(kind, "unix") {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", rest)
		}
		host = "localhost"
	}
	scheme := "http"
	if secure != nil {
		scheme = "https"
	}
	return &Member{Endpoint: endpoint, base: scheme + "://" + host, token: token,
		http: &http.Client{Transport: t, Timeout: timeout}}
}

// Close closes idle connections.
func (m *Member) Close() { m.http.CloseIdleConnections() }

// get reads a page of up to maxAnswer bytes.
func (m *Member) get(ctx context.Context, path string, read func(*http.Response) error) error {
	return m.getUpTo(ctx, maxAnswer, path, read)
}

// getUpTo reads a page of up to a number of bytes.
func (m *Member) getUpTo(ctx context.Context, most int64, path string,
	read func(*http.Response) error) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.base+path, nil)
	if err != nil {
		return err
	}
	if m.token != "" {
		req.Header.Set("Authorization", m.token)
	}
	resp, err := m.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotFound:
		return ErrNotFound
	case resp.StatusCode != http.StatusOK:
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(b)))
	}
	limited := &io.LimitedReader{R: resp.Body, N: most}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{limited, resp.Body}
	if err := read(resp); err != nil {
		if limited.N == 0 {
			err = fmt.Errorf("more than %d bytes", most)
		}
		return fmt.Errorf("%s%s: %w", m.base, path, err)
	}
	return nil
}

// Metrics reads /metrics.
func (m *Member) Metrics(ctx context.Context) (health.Metrics, error) {
	var out health.Metrics
	err := m.getUpTo(ctx, maxMetrics, "/metrics", func(r *http.Response) (err error) {
		out, err = health.ParseMetrics(r.Body)
		return err
	})
	return out, err
}

// Watchers reads /debug/watch, which etcd does not have: ErrNotFound.
func (m *Member) Watchers(ctx context.Context) (*debugpage.Watchers, error) {
	w := new(debugpage.Watchers)
	err := m.getUpTo(ctx, maxWatchers, "/debug/watch?format=json",
		func(r *http.Response) error { return json.NewDecoder(r.Body).Decode(w) })
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Pages returns the address under which the member serves the pages that findings name, with a
// slash.
func (m *Member) Pages(ctx context.Context) (string, error) {
	return m.base + "/console/",
		m.get(ctx, "/console/docs/", func(*http.Response) error { return nil })
}

// Clock reads the member's time from the header of /version. The header has whole seconds and the
// request takes a round trip: both widen the range from Least to Most.
func (m *Member) Clock(ctx context.Context) (health.Clock, error) {
	var c health.Clock
	sent := time.Now()
	err := m.get(ctx, "/version", func(r *http.Response) error {
		received := time.Now()
		date, err := http.ParseTime(r.Header.Get("Date"))
		if err != nil {
			return fmt.Errorf("header Date: %w", err)
		}
		c = clock(date, sent, received)
		return nil
	})
	return c, err
}

// clock compares a date, truncated to seconds, with the times when the request was sent and the
// answer received.
func clock(date, sent, received time.Time) health.Clock {
	// The member wrote the date between the two: its clock was at least date and less than a second
	// later.
	return health.Clock{Least: date.Sub(received.Round(0)),
		Most: date.Add(time.Second).Sub(sent.Round(0))}
}

// Certificate returns the certificate of the member's chain that expires first, nil without TLS. An
// expired certificate is not an error here, although no other page can be read then.
func (m *Member) Certificate(ctx context.Context) (*x509.Certificate, error) {
	var first *x509.Certificate
	err := m.get(ctx, "/version", func(r *http.Response) error {
		if r.TLS != nil {
			first = firstExpiry(r.TLS.PeerCertificates)
		}
		return nil
	})
	if rejected, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		if c := firstExpiry(rejected.UnverifiedCertificates); c != nil &&
			c.NotAfter.Before(time.Now()) {
			return c, nil
		}
	}
	return first, err
}

// firstExpiry returns the certificate of a chain that expires first.
func firstExpiry(chain []*x509.Certificate) (first *x509.Certificate) {
	for _, c := range chain {
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = c
		}
	}
	return first
}

// State reads the member's description of itself from /debug/vars. A member serves that page before
// it serves clients.
func (m *Member) State(ctx context.Context) (health.Report, error) {
	var vars struct {
		Settings map[string]string    `json:"settings"`
		Line     []string             `json:"cmdline"`
		Waiting  *health.Wait         `json:"waiting"`
		Failures []health.PeerFailure `json:"peer_failures"`
		Recent   []health.Window      `json:"recent"`
		Certs    []health.Certificate `json:"certificates"`
		Raft     json.RawMessage      `json:"raft.status"`
	}
	err := m.get(ctx, "/debug/vars",
		func(r *http.Response) error { return json.NewDecoder(r.Body).Decode(&vars) })
	if err != nil {
		return health.Report{}, err
	}
	if vars.Settings == nil {
		vars.Settings = flagsOf(vars.Line)
	}
	out := health.Report{Settings: vars.Settings, Waits: vars.Waiting, Failures: vars.Failures,
		Recent: vars.Recent, Certificates: vars.Certs}
	out.Limit()
	var raft struct {
		ID string `json:"id"`
	}
	if json.Unmarshal(vars.Raft, &raft) == nil {
		out.Member, _ = strconv.ParseUint(raft.ID, 16, 64) // 0 if unknown
	}
	return out, nil
}

// flagsOf returns the flags of a command line, nil if the command line is unknown.
func flagsOf(line []string) map[string]string {
	if line == nil {
		return nil
	}
	flags := map[string]string{}
	for i, s := range line {
		name, ok := strings.CutPrefix(s, "-")
		if !ok || i == 0 {
			continue
		}
		name, value, given := strings.Cut(strings.TrimPrefix(name, "-"), "=")
		if !given && i+1 < len(line) && !strings.HasPrefix(line[i+1], "-") {
			value = line[i+1]
		}
		flags[name] = value
	}
	return flags
}
