package server

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"vigil/cluster"
	"vigil/compactor"
	"vigil/internal/vfs"
	"vigil/ration"
)

// Default URLs of a member that is told none.
const (
	DefaultClientURL = "http://localhost:2379"
	DefaultPeerURL   = "http://localhost:2380"
)

// Config says how a member runs. The zero value of every field stands for its default, which
// WithDefaults fills in; Validate reports everything that is wrong at once.
type Config struct {
	// Name is the member's name for people. Default "default".
	Name string
	// DataDir holds everything the member stores. Default Name + ".etcd" in the working directory.
	DataDir string
	// WALDir holds the raft log instead of DataDir/wal, on another disk for instance.
	WALDir string

	// ListenClientURLs are where clients are served: http:// with an IP address or localhost,
	// or unix://PATH. Default DefaultClientURL, bound as 127.0.0.1.
	ListenClientURLs []string
	// AdvertiseClientURLs are what clients are told to dial. Default: ListenClientURLs.
	AdvertiseClientURLs []string
	// ListenMetricsURLs serve /metrics and the health paths besides the client port.
	ListenMetricsURLs []string
	// ListenPeerURLs are where other members connect, http:// or https:// with an IP address or
	// localhost, unix:// or unixs://PATH; they serve /version, /members and the health paths too. A
	// member of several listens on DefaultPeerURL by default, a single one nowhere: it has nobody to
	// wait for, and refuses to add a member.
	ListenPeerURLs []string
	// InitialAdvertisePeerURLs are what other members are told to dial; the member's id is
	// derived from them and the token. Default DefaultPeerURL.
	InitialAdvertisePeerURLs []string
	// InitialCluster lists the members of the cluster as NAME=URL,..., a name once for each of its
	// URLs. Default: this member. It is used while there is no data.
	InitialCluster string
	// InitialClusterState is "new" (the default), or "existing" for a member that was added to a
	// cluster.
	InitialClusterState string
	// PeerTLS are the certificates of the streams between members.
	PeerTLS TLS
	// ForceNewCluster makes this member the only one of its cluster, with all its data.
	ForceNewCluster bool
	// LaxReconfig leaves out the checks that keep a change of the membership from losing quorum.
	LaxReconfig bool
	// MaxLearners is the number of learners there may be, default 1.
	MaxLearners int
	// InitialClusterToken tells clusters with equal URLs apart. Default "etcd-cluster".
	InitialClusterToken string

	// HeartbeatInterval is the raft tick, default 100 ms; ElectionTimeout is how long a
	// follower waits for a leader, default 1 s, at least 5 heartbeats and at most 50 s.
	HeartbeatInterval time.Duration
	ElectionTimeout   time.Duration
	// SnapshotCount is the number of applied requests after which the raft log is cut. Default
	// 10,000.
	SnapshotCount uint64
	// SnapshotCatchUpEntries is how many entries the cut leaves for slow members. Default 5,000.
	SnapshotCatchUpEntries uint64

	// QuotaBackendBytes is the size of live data at which puts are refused until there is less; 0 is
	// 2 GiB, negative means none.
	QuotaBackendBytes int64
	// ScrubBytesPerSecond is how fast stored data is read over and over to find damage, default 8
	// MiB; negative means not at all. ScrubPause is the rest between two rounds, default 1 h.
	ScrubBytesPerSecond int64
	ScrubPause          time.Duration

	// CorruptCheckInterval is how often the leader compares the data of all members, default 10 min;
	// CompactHashCheckInterval how often the hashes that compactions have left, default 1 min. Negative
	// means never.
	CorruptCheckInterval, CompactHashCheckInterval time.Duration
	// NoInitialCorruptCheck leaves out comparing with other members before clients are served,
	// NoCompactHashCheck comparing the hashes of compactions.
	NoInitialCorruptCheck, NoCompactHashCheck bool

	// AutoCompactionMode and AutoCompactionRetention say what history to keep, see compactor.Parse: a
	// time ("periodic", the default) or a number of revisions ("revision"). Default all of it.
	AutoCompactionMode, AutoCompactionRetention string

	// MaxTxnOps is the largest number of operations of a transaction, default 128.
	MaxTxnOps int
	// MaxRequestBytes is the largest request, default 1.5 MiB.
	MaxRequestBytes int
	// MaxRangeBytesInFlight is the memory, in bytes, that results of more than 1 MiB may take together
	// while they are made and sent; those for which there is no room wait. A single result that is
	// larger has all of it for itself. Default 256 MiB, at least 4 MiB.
	MaxRangeBytesInFlight int64
	// MaxConcurrentStreams is the number of gRPC streams one connection may have open, default
	// 2^32-1.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is the least interval between a client's pings, default 5 s.
	// KeepAliveInterval and KeepAliveTimeout are how often the server pings an idle client and
	// how long it waits for the answer, default 2 h and 20 s.
	KeepAliveMinTime, KeepAliveInterval, KeepAliveTimeout time.Duration
	// WatchProgressInterval is how often a watcher that asked for it hears of progress, default
	// 10 min plus up to a tenth of jitter.
	WatchProgressInterval time.Duration
	// MaxWatchersPerStream is the number of watchers on one stream at which further ones are refused,
	// default 1,000,000.
	MaxWatchersPerStream int

	// UnsafeNoSync leaves out fdatasync. Acknowledged writes are then lost in a power failure.
	UnsafeNoSync bool
	// EnablePprof serves /debug/pprof on the client port.
	EnablePprof bool

	// Logger receives the member's log. Default slog.Default().
	Logger *slog.Logger
	// FS is the file system that holds DataDir and WALDir. Default the machine's.
	FS vfs.FS
}

// WithDefaults returns c with every field that is zero set to its default.
func (c Config) WithDefaults() Config {
	def(&c.Name, "default")
	def(&c.DataDir, c.Name+".etcd")
	def(&c.WALDir, filepath.Join(c.DataDir, "wal"))
	if len(c.ListenClientURLs) == 0 {
		c.ListenClientURLs = []string{DefaultClientURL}
	}
	if len(c.AdvertiseClientURLs) == 0 {
		c.AdvertiseClientURLs = slices.Clone(c.ListenClientURLs)
	}
	if len(c.ListenPeerURLs) == 0 && (c.InitialClusterState == "existing" || namesSeveral(c.InitialCluster)) {
		c.ListenPeerURLs = []string{DefaultPeerURL}
	}
	if len(c.InitialAdvertisePeerURLs) == 0 {
		c.InitialAdvertisePeerURLs = []string{DefaultPeerURL}
	}
	if c.InitialCluster == "" {
		parts := make([]string, len(c.InitialAdvertisePeerURLs))
		for i, u := range c.InitialAdvertisePeerURLs {
			parts[i] = c.Name + "=" + u
		}
		c.InitialCluster = strings.Join(parts, ",")
	}
	def(&c.InitialClusterState, "new")
	def(&c.InitialClusterToken, "etcd-cluster")
	def(&c.HeartbeatInterval, 100*time.Millisecond)
	def(&c.ElectionTimeout, 1000*time.Millisecond)
	def(&c.SnapshotCount, 10_000)
	def(&c.SnapshotCatchUpEntries, 5_000)
	def(&c.QuotaBackendBytes, 2<<30)
	def(&c.ScrubBytesPerSecond, 8<<20)
	def(&c.ScrubPause, time.Hour)
	def(&c.CorruptCheckInterval, 10*time.Minute)
	def(&c.CompactHashCheckInterval, time.Minute)
	def(&c.AutoCompactionMode, string(compactor.Periodic))
	def(&c.AutoCompactionRetention, "0")
	def(&c.MaxTxnOps, 128)
	def(&c.MaxLearners, 1)
	def(&c.PeerTLS.Validity, 365*24*time.Hour)
	def(&c.MaxRequestBytes, 3<<19)
	def(&c.MaxRangeBytesInFlight, ration.DefaultLimit)
	def(&c.MaxConcurrentStreams, math.MaxUint32)
	def(&c.KeepAliveMinTime, 5*time.Second)
	def(&c.KeepAliveInterval, 2*time.Hour)
	def(&c.KeepAliveTimeout, 20*time.Second)
	def(&c.WatchProgressInterval, 10*time.Minute)
	def(&c.MaxWatchersPerStream, 1_000_000)
	if c.NoCompactHashCheck {
		c.CompactHashCheckInterval = -1
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.FS == nil {
		c.FS = vfs.OS()
	}
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports every field that cannot work, in the words of the command line's flags. It
// expects defaults to be filled in.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	listeners := []struct {
		flag string
		urls []string
	}{
		{"listen-client-urls", c.ListenClientURLs},
		{"listen-peer-urls", c.ListenPeerURLs},
		{"listen-metrics-urls", c.ListenMetricsURLs},
	}
	for _, l := range listeners {
		for _, s := range l.urls {
			_, _, secure, err := listenAddr(s)
			switch {
			case err != nil:
				bad("--%s: %w", l.flag, err)
			case secure && l.flag != "listen-peer-urls":
				bad("--%s: %q: this version serves clients no TLS; use http:// or unix://", l.flag, s)
			case secure && !c.PeerTLS.serves():
				bad("--%s: %q needs --peer-cert-file and --peer-key-file, or --peer-auto-tls", l.flag, s)
			}
		}
	}
	for _, s := range c.AdvertiseClientURLs {
		if err := checkAdvertised(s); err != nil {
			bad("--advertise-client-urls: %w", err)
		}
	}
	for _, s := range c.InitialAdvertisePeerURLs {
		if err := checkAdvertised(s); err != nil {
			bad("--initial-advertise-peer-urls: %w", err)
		}
	}
	if _, _, err := c.initialMembers(); err != nil {
		bad("--initial-cluster: %w", err)
	}
	if err := c.PeerTLS.validate(); err != nil {
		bad("%w", err)
	}
	if c.MaxLearners < 1 {
		bad("--max-learners: %d is less than 1", c.MaxLearners)
	}
	if c.ForceNewCluster && c.InitialClusterState == "existing" {
		bad("--force-new-cluster: not together with --initial-cluster-state=existing: it uses the data that is there")
	}
	if c.InitialClusterState != "new" && c.InitialClusterState != "existing" {
		bad(`--initial-cluster-state: %q is neither "new" nor "existing"`, c.InitialClusterState)
	}
	if c.HeartbeatInterval < time.Millisecond {
		bad("--heartbeat-interval: %v is less than 1 ms", c.HeartbeatInterval)
	}
	if c.ElectionTimeout < 5*c.HeartbeatInterval {
		bad("--election-timeout: %v must be at least 5 times --heartbeat-interval (%v)", c.ElectionTimeout, c.HeartbeatInterval)
	}
	if c.ElectionTimeout > 50*time.Second {
		bad("--election-timeout: %v is more than 50 s", c.ElectionTimeout)
	}
	if _, err := compactor.Parse(c.AutoCompactionMode, c.AutoCompactionRetention); err != nil {
		bad("--auto-compaction-mode, --auto-compaction-retention: %w", err)
	}
	if c.MaxTxnOps < 1 {
		bad("--max-txn-ops: %d is less than 1", c.MaxTxnOps)
	}
	// Requests travel in raft entries and gRPC messages whose lengths are 32-bit numbers.
	if c.MaxRequestBytes < 1 || c.MaxRequestBytes > 1<<30 {
		bad("--max-request-bytes: %d is outside 1 to %d", c.MaxRequestBytes, 1<<30)
	}
	if c.MaxRangeBytesInFlight < ration.MinLimit {
		bad("--max-range-bytes-in-flight: %d is less than %d", c.MaxRangeBytesInFlight, ration.MinLimit)
	}
	if c.MaxWatchersPerStream < 1 {
		bad("--max-watchers-per-stream: %d is below 1", c.MaxWatchersPerStream)
	}
	if d := c.WatchProgressInterval; d >= 0 && d < 100*time.Millisecond {
		bad("--watch-progress-notify-interval: %v is below 100ms", d)
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"grpc-keepalive-min-time", c.KeepAliveMinTime},
		{"grpc-keepalive-interval", c.KeepAliveInterval},
		{"grpc-keepalive-timeout", c.KeepAliveTimeout},
		{"watch-progress-notify-interval", c.WatchProgressInterval},
		{"scrub-pause", c.ScrubPause},
	} {
		if d.value < 0 {
			bad("--%s: %v is negative", d.flag, d.value)
		}
	}
	return errors.Join(errs...)
}

// namesSeveral reports whether an initial cluster has more than one member.
func namesSeveral(s string) bool {
	first := ""
	for i, part := range strings.Split(s, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(part), "=")
		if i == 0 {
			first = name
		}
		if name != first {
			return true
		}
	}
	return false
}

// initialMembers returns the members that InitialCluster lists, by name, and the URLs of this one.
func (c Config) initialMembers() (members []cluster.Member, own []string, err error) {
	owner := map[string]string{}
	for _, part := range strings.Split(c.InitialCluster, ",") {
		name, u, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return nil, nil, fmt.Errorf("%q is not of the form NAME=URL", part)
		}
		if err := checkAdvertised(u); err != nil {
			return nil, nil, err
		}
		if by, ok := owner[u]; ok {
			return nil, nil, fmt.Errorf("%s is listed twice, for %q and %q: each member needs a URL of its own", u, by, name)
		}
		owner[u] = name
		i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.Name == name })
		if i < 0 {
			i = len(members)
			members = append(members, cluster.Member{Name: name})
		}
		members[i].PeerURLs = append(members[i].PeerURLs, u)
	}
	for i := range members {
		slices.Sort(members[i].PeerURLs)
		if members[i].Name == c.Name {
			own = members[i].PeerURLs
		}
	}
	if own == nil {
		return nil, nil, fmt.Errorf("no member is named %q (--name) in %q", c.Name, c.InitialCluster)
	}
	advertised := slices.Clone(c.InitialAdvertisePeerURLs)
	slices.Sort(advertised)
	if !slices.Equal(own, advertised) {
		return nil, nil, fmt.Errorf("has %s for %q, but --initial-advertise-peer-urls has %s",
			strings.Join(own, ","), c.Name, strings.Join(advertised, ","))
	}
	return members, own, nil
}

// listenAddr turns a listen URL into what net.Listen takes.
func listenAddr(s string) (network, addr string, secure bool, err error) {
	u, err := url.Parse(s)
	if err != nil {
		return "", "", false, fmt.Errorf("%q is not a URL: %w", s, errors.Unwrap(err))
	}
	switch u.Scheme {
	case "unix", "unixs":
		path := u.Host + u.Path
		if path == "" {
			return "", "", false, fmt.Errorf("%q names no socket file", s)
		}
		return "unix", path, u.Scheme == "unixs", nil
	case "http":
	case "https":
		secure = true
	default:
		return "", "", false, fmt.Errorf("%q must start with http://, https:// or unix://", s)
	}
	if u.Path != "" && u.Path != "/" {
		return "", "", false, fmt.Errorf("%q must not have a path", s)
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil || port == "" {
		return "", "", false, fmt.Errorf("%q must have the form %s://HOST:PORT", s, u.Scheme)
	}
	if host == "localhost" {
		host = "127.0.0.1"
	}
	if net.ParseIP(host) == nil {
		return "", "", false, fmt.Errorf("%q must name an IP address or localhost to listen on, not %q", s, host)
	}
	return "tcp", net.JoinHostPort(host, port), secure, nil
}

// checkAdvertised accepts what another program can dial.
func checkAdvertised(s string) error {
	u, err := url.Parse(s)
	if err != nil {
		return fmt.Errorf("%q is not a URL: %w", s, errors.Unwrap(err))
	}
	switch u.Scheme {
	case "unix", "unixs":
		return nil
	case "http", "https":
	default:
		return fmt.Errorf("%q must start with http://, https:// or unix://", s)
	}
	if u.Path != "" && u.Path != "/" {
		return fmt.Errorf("%q must not have a path", s)
	}
	if _, port, err := net.SplitHostPort(u.Host); err != nil || port == "" {
		return fmt.Errorf("%q must have the form %s://HOST:PORT", s, u.Scheme)
	}
	return nil
}
