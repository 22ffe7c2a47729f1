package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"time"
)

// Member is a member of the cluster as far as its peers need to know it.
type Member struct {
	ID uint64
	// URLs are its advertised peer URLs, tried in turn: http://HOST:PORT, https://HOST:PORT,
	// unix://PATH or unixs://PATH.
	URLs []string
}

// Options configures a Transport. ClusterID and MemberID are required; the zero value of every
// other field means its default.
type Options struct {
	ClusterID uint64
	MemberID  uint64
	// Version is the version of this program, at most 64 bytes; other members see it.
	Version string
	// PeerURLs are the URLs for others to dial, until SetMembers changes them. Here as in
	// SetMembers, an invalid URL is logged and left out rather than rejected, because the
	// membership already has it.
	PeerURLs []string

	// ServerTLS is called for each connection that ServeTLS accepts, ClientTLS for each that is
	// dialed to an https or unixs URL, so that certificates can be changed while they are in use.
	// The Transport does not modify the returned configurations. A ServerTLS config must not offer
	// h2.
	ServerTLS, ClientTLS func() *tls.Config
	// LocalAddr is the local IP address of connections to other members, for members whose
	// certificates or firewalls name one of several. Empty: the system chooses.
	LocalAddr string
	// Dial makes connections, without LocalAddr and keep-alives. Default net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// HTTP hands HTTP connections to the listener that method HTTP returns. Otherwise they are
	// rejected.
	HTTP bool
	// Logger receives changes of connections at info and refusals at warn. Default none.
	Logger *slog.Logger

	// DialTimeout bounds making a connection, default 3 s; HandshakeTimeout the time after it until
	// the stream is open, TLS included, default 5 s.
	DialTimeout, HandshakeTimeout time.Duration
	// PingInterval is how often the side of a stream that dialed sends a heartbeat, which the other
	// one answers, default 1 s. If none arrives, the other side sends heartbeats by itself, every 1
	// 1/4 PingIntervals. DeadAfter is how long a side may be silent, or a write may take, before
	// the stream is closed; default 4 s, at least two PingIntervals.
	PingInterval, DeadAfter time.Duration
	// BackoffMin and BackoffMax bound the wait before a member is dialed again, default 100 ms and
	// 5 s. It doubles with each failure, is shortened at random by up to half, and ends early when
	// that member dials this one.
	BackoffMin, BackoffMax time.Duration
	// ReachAfter is how long after its start a member says in the log that no other one has
	// connected to it, default 10 s.
	ReachAfter time.Duration
	// BulkStall is how long a bulk transfer may make no progress, default 1 min. Time that the
	// source or the receiver takes counts.
	BulkStall time.Duration

	// MaxPending bounds connections that were accepted and have not finished the handshake, default
	// 128; the oldest is closed for a new one.
	MaxPending int
	// MaxQueueBytes and MaxQueueMessages bound the messages of the log lane that wait for one
	// member, default 32 MiB and 4096. MaxQueueMessages bounds the control lane too.
	MaxQueueBytes, MaxQueueMessages int
	// MaxMessageBytes bounds one encoded raft message, default 64 MiB. It must exceed the largest
	// request by more than raft's own limit of a message, and be the same at all members.
	MaxMessageBytes int
	// MaxCallBytes bounds the payload of a call and of its answer, default 1 MiB.
	MaxCallBytes int
	// MaxCalls bounds the calls under way from one member to another, default 256, and those of
	// strangers together.
	MaxCalls int
}

func (o *Options) setDefaults() {
	def(&o.DialTimeout, 3*time.Second)
	def(&o.HandshakeTimeout, 5*time.Second)
	def(&o.PingInterval, time.Second)
	def(&o.DeadAfter, 4*time.Second)
	def(&o.BackoffMin, 100*time.Millisecond)
	def(&o.BackoffMax, 5*time.Second)
	def(&o.ReachAfter, 10*time.Second)
	def(&o.BulkStall, time.Minute)
	def(&o.MaxPending, 128)
	def(&o.MaxQueueBytes, 32<<20)
	def(&o.MaxQueueMessages, 4096)
	def(&o.MaxMessageBytes, 64<<20)
	def(&o.MaxCallBytes, 1<<20)
	def(&o.MaxCalls, 256)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// Validate reports every invalid field.
func (o *Options) Validate() error {
	c := *o
	c.setDefaults()
	var errs []error
	need := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("peer: "+format, args...))
		}
	}
	need(c.ClusterID != 0, "ClusterID is 0")
	need(c.MemberID != 0, "MemberID is 0")
	need(len(c.Version) <= maxVersion, "Version has %d bytes, the most is %d",
		len(c.Version), maxVersion)
	need(c.LocalAddr == "" || net.ParseIP(c.LocalAddr) != nil,
		"LocalAddr %q is no IP address", c.LocalAddr)
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"DialTimeout", c.DialTimeout}, {"HandshakeTimeout", c.HandshakeTimeout},
		{"PingInterval", c.PingInterval},
		{"BackoffMin", c.BackoffMin}, {"ReachAfter", c.ReachAfter}, {"BulkStall", c.BulkStall},
	} {
		need(d.value > 0, "%s is %v", d.name, d.value)
	}
	need(c.DeadAfter >= 2*c.PingInterval, "DeadAfter is %v, less than two PingIntervals of %v",
		c.DeadAfter, c.PingInterval)
	need(c.BackoffMax >= c.BackoffMin, "BackoffMax is %v, less than BackoffMin of %v",
		c.BackoffMax, c.BackoffMin)
	for _, n := range []struct {
		name       string
		value, max int
	}{
		{"MaxPending", c.MaxPending, 1 << 20}, {"MaxQueueBytes", c.MaxQueueBytes, 1 << 40},
		{"MaxQueueMessages", c.MaxQueueMessages, 1 << 20},
		{"MaxMessageBytes", c.MaxMessageBytes, 1<<31 - 1},
		{"MaxCallBytes", c.MaxCallBytes, 1 << 30}, {"MaxCalls", c.MaxCalls, 1 << 20},
	} {
		need(n.value > 0 && n.value <= n.max, "%s is %d, outside 1 to %d", n.name, n.value, n.max)
	}
	return errors.Join(errs...)
}

// checkURLs reports invalid peer URLs of a member.
func checkURLs(urls []string) error {
	if len(urls) > maxURLs {
		return fmt.Errorf("%d URLs, the most is %d", len(urls), maxURLs)
	}
	for _, u := range urls {
		if _, err := parseURL(u); err != nil {
			return err
		}
	}
	return nil
}

// setSelfLocked sets this member's URLs for the handshake. It leaves out URLs that others cannot
// dial or that exceed a limit of the handshake, since others would refuse the handshake: the
// initial cluster and snapshots have other limits. mu is held.
func (t *Transport) setSelfLocked(urls []string) {
	if slices.Equal(urls, t.mu.selfGiven) {
		return
	}
	t.mu.selfGiven, t.mu.self = slices.Clone(urls), nil
	for _, u := range urls {
		_, err := parseURL(u)
		if err == nil && printable([]byte(u)) != u {
			err = fmt.Errorf("URL %q: not in ASCII", u)
		}
		if err != nil {
			t.o.Logger.Warn("others cannot dial a peer URL of this member; "+
				"correct it with member update", hexID("member-id", t.o.MemberID),
				slog.Any("error", err))
			continue
		}
		t.mu.self = append(t.mu.self, u)
	}
	if n := len(t.mu.self); n > maxURLs {
		t.mu.self = t.mu.self[:maxURLs]
		t.o.Logger.Warn("the handshake cannot carry every peer URL of this member",
			hexID("member-id", t.o.MemberID), slog.Int("urls", n), slog.Int("most", maxURLs))
	}
}

// target is a parsed peer URL.
type target struct {
	url, network, addr string
	secure             bool
	host               string // for the certificate
}

func parseURL(s string) (target, error) {
	if len(s) > maxURL {
		return target{}, fmt.Errorf("URL of %d bytes, the most is %d", len(s), maxURL)
	}
	u, err := url.Parse(s)
	if err != nil {
		return target{}, fmt.Errorf("URL %q: not a URL", s)
	}
	t := target{url: s, network: "tcp", host: u.Hostname()}
	switch u.Scheme {
	case "http", "https":
		t.secure = u.Scheme == "https"
		t.addr = u.Host
		if u.Hostname() == "" || u.Port() == "" || u.Path != "" && u.Path != "/" {
			return target{}, fmt.Errorf("URL %q: want %s://HOST:PORT", s, u.Scheme)
		}
	case "unix", "unixs":
		t.secure = u.Scheme == "unixs"
		t.network, t.addr = "unix", u.Host+u.Path
		if t.addr == "" {
			return target{}, fmt.Errorf("URL %q: want %s://PATH", s, u.Scheme)
		}
	default:
		return target{}, fmt.Errorf("URL %q: want http, https, unix or unixs", s)
	}
	return t, nil
}
