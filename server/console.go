package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	"vigil/internal/edge/console"
	"vigil/internal/edge/gateway"
	"vigil/internal/edge/httpd"
	"vigil/internal/member/calls"
	"vigil/internal/member/peer"
)

// openConsole makes the console, which calls the services as the gateway does. But for the console
// a client certificate identifies a user.
func (m *Member) openConsole() (*console.Console, error) {
	services := m.rpc.InProcess()
	h := m.replica.Header()
	var endpoints string
	if len(m.cfg.ListenClientHTTPURLs) > 0 {
		endpoints = strings.Join(m.cfg.AdvertiseClientURLs, ",")
	}
	return console.New(console.Config{
		Serve: m.cfg.Console, Conn: gateway.NewConn(services), WithCaller: services.WithConnection,
		CertificateUsers: m.cfg.ClientTLS.ClientCertAuth, AuthEnabled: m.replica.Access.AuthEnabled,
		RequireAdmin: m.replica.Access.RequireAdmin, User: m.replica.Access.User,
		Rights: m.replica.Access.Rights,
		Leader: consoleCalls{m}.leadership, Watchers: consoleCalls{m}.watchersOf,
		Self: console.Identity{Cluster: h.ClusterID, Member: h.MemberID, Name: m.cfg.Name,
			Version: Version},
		Sample: consoleCalls{m}.sampleOf, Compare: consoleCalls{m}.comparisonOf,
		Hosts: m.cfg.consoleHosts(), Endpoints: endpoints, MaxRequestBytes: m.cfg.MaxRequestBytes,
	})
}

// ConsoleURL returns the URL of the console for a browser once the member serves. The host is a
// local one if only local connections see the console, and otherwise the advertised one. It is
// empty if the console is off, if no TCP address serves it, or if --host-whitelist refuses its
// name.
func (m *Member) ConsoleURL() string {
	everywhere := m.cfg.Console == console.On || m.cfg.Console == console.Auto &&
		m.replica.Access.AuthEnabled()
	if !everywhere && m.cfg.Console != console.Auto {
		return ""
	}
	for _, l := range m.listeners {
		at, ok := l.listener.Addr().(*net.TCPAddr)
		if !ok || !l.http {
			continue
		}
		host := l.host
		switch ip := net.ParseIP(host); {
		case ip.IsUnspecified():
			host = "127.0.0.1"
			if told := m.cfg.advertisedHost(at.Port); everywhere && told != "" {
				host = told
			}
		case !at.IP.IsLoopback() && !everywhere:
			continue
		}
		scheme := "https"
		if !l.secure {
			scheme = "http"
			if !httpd.Allows(m.cfg.HostWhitelist, host) && host == "127.0.0.1" {
				host = "localhost"
			}
			if !httpd.Allows(m.cfg.HostWhitelist, host) {
				continue
			}
		}
		return scheme + "://" + net.JoinHostPort(host, strconv.Itoa(at.Port)) + console.Prefix
	}
	return ""
}

// advertisedHost returns the host of the first advertised client URL with this port that clients
// can dial, empty if there is none.
func (c *Config) advertisedHost(port int) string {
	for _, s := range c.AdvertiseClientURLs {
		if u, err := url.Parse(s); err == nil && u.Port() == strconv.Itoa(port) &&
			!net.ParseIP(u.Hostname()).IsUnspecified() {
			return u.Hostname()
		}
	}
	return ""
}

// consoleHosts returns the host names that the console accepts in requests without TLS: the hosts
// in the member's URLs and in --host-whitelist.
func (c *Config) consoleHosts() (hosts []string) {
	for _, list := range [][]string{c.AdvertiseClientURLs, c.ListenClientURLs,
		c.ListenClientHTTPURLs} {
		for _, s := range list {
			if u, err := url.Parse(s); err == nil && u.Hostname() != "" {
				hosts = append(hosts, u.Hostname())
			}
		}
	}
	for _, name := range c.HostWhitelist {
		if name != httpd.Any {
			hosts = append(hosts, name)
		}
	}
	return hosts
}

// consoleCalls measures members for the console, and answers other members whose consoles have
// readers.
type consoleCalls struct{ m *Member }

// leadership returns whether this member knows a leader.
func (c consoleCalls) leadership() console.Leadership {
	st := c.m.replica.Status()
	return console.Leadership{Known: st.Leader != 0, Lost: st.LeaderLost}
}

// sampleOf measures a member for the console: this one directly, another one with a call.
func (c consoleCalls) sampleOf(ctx context.Context, id uint64) (*console.Sample, error) {
	if id == c.m.replica.Header().MemberID {
		return c.sample()
	}
	b, err := c.m.transport.Call(ctx, id, calls.Sample, nil)
	if err != nil {
		return nil, err
	}
	return console.DecodeSample(b)
}

// sample measures this member.
func (c consoleCalls) sample() (*console.Sample, error) {
	s, err := console.NewSample(c.m.rpc.Status(), c.m.registry, c.m.history)
	if err != nil {
		return nil, err
	}
	s.Version = Version
	s.Settings, s.Certificates = c.m.settings(), c.m.certificates()
	s.Waits, s.Failures = c.m.waiting(), c.m.failures()
	return s, nil
}

// answerSample answers a call from another member's console.
func (c consoleCalls) answerSample() ([]byte, error) {
	s, err := c.sample()
	if err != nil {
		return nil, err
	}
	return json.Marshal(s)
}

// watchersOf lists the watchers of a member for the console: of this one directly, of another with
// a call.
func (c consoleCalls) watchersOf(ctx context.Context, id uint64,
	q console.WatchersQuery) (*console.WatchersView, error) {
	if id == c.m.replica.Header().MemberID {
		return console.ListWatchers(c.m.replica.Hub().Stats(), q), nil
	}
	q.Rights = c.m.replica.Access.Revision()
	question, err := json.Marshal(q)
	if err != nil {
		return nil, err
	}
	b, err := c.m.transport.Call(ctx, id, calls.Watchers, question)
	if err != nil {
		return nil, err
	}
	return console.DecodeWatchers(b)
}

// answerWatchers answers another member, which has checked that its reader may see all watchers.
func (c consoleCalls) answerWatchers(question []byte) ([]byte, error) {
	var q console.WatchersQuery
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, &peer.Error{Code: peer.CodeMalformed,
			Text: fmt.Sprintf("a question for watchers: %v", err)}
	}
	if err := c.checkRights(q.Rights); err != nil {
		return nil, err
	}
	return json.Marshal(console.ListWatchers(c.m.replica.Hub().Stats(), q))
}

// checkRights returns an error if the member that asks does not know all changes of users and roles
// that this one knows: without a leader it decides by what it knows, and its reader may have lost
// the right to see what this member has.
func (c consoleCalls) checkRights(revision uint64) error {
	if revision < c.m.replica.Access.Revision() {
		return &peer.Error{Code: peer.CodeFailed,
			Text: "users or roles have changed, which the member that asks does not know: open " +
				"the console of this member"}
	}
	return nil
}

// comparisonOf returns what a member has for a comparison of data: this one, or another by a call.
func (c consoleCalls) comparisonOf(ctx context.Context, id uint64,
	revision int64) (*console.Comparison, error) {
	if id == c.m.replica.Header().MemberID {
		return c.comparison(ctx, revision)
	}
	question, err := json.Marshal(console.ComparisonQuery{Revision: revision,
		Rights: c.m.replica.Access.Revision()})
	if err != nil {
		return nil, err
	}
	b, err := c.m.transport.Call(ctx, id, calls.Compare, question)
	if err != nil {
		return nil, err
	}
	return console.DecodeComparison(b)
}

// comparison returns what this member has for a comparison of data. It reads the whole store.
func (c consoleCalls) comparison(ctx context.Context, revision int64) (*console.Comparison, error) {
	st := c.m.rpc.Status() // before the hash
	res, err := c.m.replica.HashKV(ctx, revision)
	if err != nil {
		return nil, err
	}
	return console.NewComparison(st, res)
}

// answerComparison answers another member, which has checked that its reader may compare the data.
func (c consoleCalls) answerComparison(ctx context.Context, question []byte) ([]byte, error) {
	var q console.ComparisonQuery
	if err := json.Unmarshal(question, &q); err != nil {
		return nil, &peer.Error{Code: peer.CodeMalformed,
			Text: fmt.Sprintf("a question for a comparison: %v", err)}
	}
	if err := c.checkRights(q.Rights); err != nil {
		return nil, err
	}
	answer, err := c.comparison(ctx, q.Revision)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}
