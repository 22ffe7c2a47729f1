package server

import (
	"log/slog"
	"time"

	"vigil/internal/member/discovery"
	"vigil/internal/vfs"
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

	// ListenClientURLs are where clients are served: http:// or https:// with an IP address or
	// localhost, unix:// or unixs://PATH. Both http:// and https:// may be given for one port. Default
	// DefaultClientURL, bound as 127.0.0.1.
	ListenClientURLs []string
	// ListenClientHTTPURLs serve everything that is not gRPC, which ListenClientURLs then do not.
	ListenClientHTTPURLs []string
	// AdvertiseClientURLs are what clients are told to dial. Default: ListenClientURLs.
	AdvertiseClientURLs []string
	// ListenMetricsURLs serve /metrics and the health paths besides the client port.
	ListenMetricsURLs []string
	// ListenPeerURLs are where other members connect, http:// or https:// with an IP address or
	// localhost, unix:// or unixs://PATH; they serve /version, /members and the health paths too.
	// Default DefaultPeerURL.
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
	// Discovery finds the members of a new cluster in place of InitialCluster. The token of a registry takes the
	// place of InitialClusterToken.
	Discovery discovery.Config
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
	// NoPreVote lets a member stand for election without asking before whether it could win: one that was cut off
	// then disturbs a leader that works. NoInitialElectionTickAdvance makes a member that starts among others without a leader wait
	// for a whole ElectionTimeout.
	NoPreVote, NoInitialElectionTickAdvance bool
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
	// SetMemberLocalAddr makes connections to other members come from the first IP address of
	// InitialAdvertisePeerURLs that is neither a loopback nor an unspecified one.
	SetMemberLocalAddr bool

	// ClientTLS and PeerTLS are the certificates of the connections of clients and of those between
	// members.
	ClientTLS, PeerTLS TLS
	// TLSMinVersion and TLSMaxVersion bound the versions of TLS: "TLS1.2" (the least, and the default),
	// "TLS1.3"; no TLSMaxVersion is the highest there is. CipherSuites, by their IANA names, are those
	// used with TLS 1.2; default a good choice.
	TLSMinVersion, TLSMaxVersion string
	CipherSuites                 []string
	// SelfSignedValidity is how long certificates that are made here are valid, default a year.
	SelfSignedValidity time.Duration
	// CORS are the origins that browsers may send requests from, and HostWhitelist the host names that
	// plain HTTP requests may be for. Default "*", which is all.
	CORS, HostWhitelist []string
	// NoGRPCGateway leaves out the API in JSON.
	NoGRPCGateway bool

	// Auth says how users show who they are.
	Auth Auth

	// AutoCompactionMode is "periodic" (the default) or "revision", and AutoCompactionRetention the
	// history that automatic compaction leaves: a duration, or a number of hours, or of revisions. "0"
	// is no automatic compaction, the default. See compactor.Parse.
	AutoCompactionMode, AutoCompactionRetention string

	// MaxTxnOps is the largest number of operations of a transaction, default 128.
	MaxTxnOps int
	// MaxRequestBytes is the largest request, default 1.5 MiB.
	MaxRequestBytes int
	// MaxRangeBytesInFlight is the memory, in bytes, that results of more than 64 KiB may take together
	// while they are made and sent; those for which there is no room wait. A single result that is
	// larger has all of it for itself. Default 256 MiB, at least 4 MiB.
	MaxRangeBytesInFlight int64
	// MaxConcurrentStreams is the number of gRPC streams one connection may have open, default
	// 2^32-1.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is the least interval between a client's pings, default 5 s.
	// KeepAliveInterval and KeepAliveTimeout are how often the server pings an idle client and
	// how long it waits for the answer, default 2 h and 20 s. A negative value leaves the matter to the
	// transport.
	KeepAliveMinTime, KeepAliveInterval, KeepAliveTimeout time.Duration
	// WatchProgressInterval is how often a watcher that asked for it hears of progress, default
	// 10 min plus up to a tenth of jitter.
	WatchProgressInterval time.Duration
	// MaxWatchersPerStream is the number of watchers on one stream at which further ones are refused,
	// default 1,000,000.
	MaxWatchersPerStream int

	// UnsafeNoSync leaves out fdatasync. Acknowledged writes are then lost in a power failure.
	UnsafeNoSync bool
	// SocketReuseAddress and SocketReusePort set SO_REUSEADDR and SO_REUSEPORT on listeners.
	SocketReuseAddress, SocketReusePort bool

	// EnablePprof serves /debug/pprof on the client port.
	EnablePprof bool
	// ExtensiveMetrics exports how long gRPC calls take, too.
	ExtensiveMetrics bool
	// WarnApplyDuration is how long applying a request may take before a line about it is logged,
	// default 100 ms, and WarnUnaryDuration the same of a unary call, default 300 ms.
	WarnApplyDuration, WarnUnaryDuration time.Duration
	// Tracing exports spans.
	Tracing Tracing

	// Logger receives the member's log. Default slog.Default().
	Logger *slog.Logger
	// FS is the file system that holds DataDir and WALDir. Default the machine's.
	FS vfs.FS
}
