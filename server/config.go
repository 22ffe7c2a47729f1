package server

import (
	"context"
	"log/slog"
	"net"
	"time"

	"vigil/internal/member/discovery"
	"vigil/internal/vfs"
)

// Defaults of a member.
const (
	DefaultClientURL = "http://localhost:2379"
	DefaultPeerURL   = "http://localhost:2380"
	defaultName      = "default"
)

// Config is the configuration of a member. The zero value of a field means its default, which
// WithDefaults sets and the help of the command vigil shows. Validate reports all mistakes at once.
type Config struct {
	// Name is the human-readable name of the member.
	Name string
	// DataDir is the directory of all data of the member. Default Name + ".etcd" in the working
	// directory.
	DataDir string
	// WALDir is the directory of the raft log, for instance on another disk. Default DataDir/wal.
	WALDir string

	// ListenClientURLs are the URLs to serve clients on: http:// or https:// with an IP address or
	// localhost, unix:// or unixs://PATH. http:// and https:// may share a port.
	ListenClientURLs []string
	// ListenClientHTTPURLs are separate URLs for everything but gRPC. ListenClientURLs serve only
	// gRPC then.
	ListenClientHTTPURLs []string
	// AdvertiseClientURLs are the URLs at which clients reach this member. Default:
	// ListenClientURLs.
	AdvertiseClientURLs []string
	// ListenMetricsURLs are additional URLs for /metrics and the health paths.
	ListenMetricsURLs []string
	// ListenPeerURLs are the URLs to serve other members on, in the same forms. They serve
	// /version, /members and the health paths too.
	ListenPeerURLs []string
	// InitialAdvertisePeerURLs are the URLs at which other members reach this member. The member's
	// ID is derived from them and the token.
	InitialAdvertisePeerURLs []string
	// InitialCluster lists the members of a new cluster as NAME=URL,..., with each URL of a member
	// after its name. Default: this member.
	InitialCluster string
	// InitialClusterState is "new", or "existing" for a member added to a running cluster.
	InitialClusterState string
	// Discovery finds the members of a new cluster instead of InitialCluster. The token of a
	// registry replaces InitialClusterToken.
	Discovery discovery.Config
	// ForceNewCluster makes this member the only member of its cluster, with all its data.
	ForceNewCluster bool
	// LaxReconfig disables the checks that a membership change keeps the quorum.
	LaxReconfig bool
	// MaxLearners limits the number of learners; a negative number allows none.
	MaxLearners int
	// InitialClusterToken distinguishes clusters with equal URLs.
	InitialClusterToken string

	// HeartbeatInterval is the raft tick. ElectionTimeout is how long a follower waits for a
	// leader: at least 5 heartbeats, at most 50 s.
	HeartbeatInterval time.Duration
	ElectionTimeout   time.Duration
	// NoPreVote disables the check before an election whether the candidate could win: a member
	// that was disconnected then deposes a working leader. With NoInitialElectionTickAdvance, a
	// starting member waits for a whole ElectionTimeout for a leader.
	NoPreVote, NoInitialElectionTickAdvance bool
	// SnapshotCount is the number of applied requests after which the raft log is truncated.
	SnapshotCount uint64
	// SnapshotCatchUpEntries is the number of entries kept for slow members.
	SnapshotCatchUpEntries uint64
	// MaxCatchUpBytes bounds the raft log kept for members that lag. 0 means a quarter of the free
	// space on its disk, at most 16 GiB.
	MaxCatchUpBytes int64

	// QuotaBackendBytes is the size of live data at which puts are rejected; negative means no
	// quota.
	QuotaBackendBytes int64
	// WALSegmentBytes and HistorySegmentBytes bound the size of a file of the raft log and of the
	// history. 0 means the defaults of packages wal and history. Small files are for tests: on a
	// full disk they may not leave enough room for requests that free space.
	WALSegmentBytes, HistorySegmentBytes int64
	// ScrubBytesPerSecond is the rate at which stored data is read to find damage; negative means
	// never. ScrubPause is the pause between two rounds.
	ScrubBytesPerSecond int64
	ScrubPause          time.Duration

	// CorruptCheckInterval is the interval at which the leader compares the data of all members,
	// CompactHashCheckInterval the interval at which it compares the hashes of compactions.
	// Negative means never.
	CorruptCheckInterval, CompactHashCheckInterval time.Duration
	// NoInitialCorruptCheck disables the comparison with other members before clients are served,
	// NoCompactHashCheck the comparison of the hashes of compactions.
	NoInitialCorruptCheck, NoCompactHashCheck bool
	// SetMemberLocalAddr makes connections to other members from the first IP address of
	// InitialAdvertisePeerURLs that is neither a loopback nor an unspecified address.
	SetMemberLocalAddr bool

	// ClientTLS and PeerTLS are the certificates for clients, and for other members.
	ClientTLS, PeerTLS TLS
	// TLSMinVersion and TLSMaxVersion are "TLS1.2" or "TLS1.3"; an empty TLSMaxVersion is the
	// highest supported version. CipherSuites are the IANA names of the suites for TLS 1.2; empty
	// means Go's choice.
	TLSMinVersion, TLSMaxVersion string
	CipherSuites                 []string
	// SelfSignedValidity is how long generated certificates are valid.
	SelfSignedValidity time.Duration
	// CORS are the allowed origins of browsers' requests, HostWhitelist the allowed host names of
	// plain HTTP requests. "*" allows all.
	CORS, HostWhitelist []string
	// NoGRPCGateway disables the API in JSON.
	NoGRPCGateway bool
	// Console is where the web interface is served: console.Auto (on loopback connections, and on
	// all while authentication is enabled), console.On or console.Off.
	Console string

	// Auth is the authentication of users.
	Auth Auth

	// AutoCompactionMode and AutoCompactionRetention are the history that automatic compaction
	// keeps, see compactor.Parse: a duration or a number of hours in mode "periodic", a number of
	// revisions in mode "revision". "0" disables it.
	AutoCompactionMode, AutoCompactionRetention string

	// MaxTxnOps limits the operations of a transaction.
	MaxTxnOps int
	// MaxRequestBytes limits the size of a request.
	MaxRequestBytes int
	// MaxRangeBytesInFlight limits the memory of all results of more than 64 KiB together, in
	// bytes; reads without room wait. A single larger result gets the whole limit for itself. At
	// least 4 MiB.
	MaxRangeBytesInFlight int64
	// MaxConcurrentStreams limits the gRPC streams of a connection.
	MaxConcurrentStreams uint32
	// KeepAliveMinTime is the shortest time allowed between two pings of a client. The server pings
	// an idle client at KeepAliveInterval and waits KeepAliveTimeout for the answer. A negative
	// value means the transport's choice.
	KeepAliveMinTime, KeepAliveInterval, KeepAliveTimeout time.Duration
	// WatchProgressInterval is how long a watcher that requested progress notifications may be idle
	// before it receives one; up to a tenth is added at random.
	WatchProgressInterval time.Duration
	// MaxWatchersPerStream limits the watchers of a stream.
	MaxWatchersPerStream int

	// UnsafeNoSync disables fdatasync: a power failure loses acknowledged writes.
	UnsafeNoSync bool
	// SocketReuseAddress and SocketReusePort set SO_REUSEADDR and SO_REUSEPORT on listeners.
	SocketReuseAddress, SocketReusePort bool

	// EnablePprof serves /debug/pprof on the client port.
	EnablePprof bool
	// ExtensiveMetrics exports durations of gRPC calls too.
	ExtensiveMetrics bool
	// WarnApplyDuration and WarnUnaryDuration are the durations after which the application of a
	// request and a unary call are logged.
	WarnApplyDuration, WarnUnaryDuration time.Duration
	// Tracing exports spans.
	Tracing Tracing

	// Archive is the continuous archive.
	Archive Archive

	// Logger receives the log of the member. Default slog.Default().
	Logger *slog.Logger
	// FS is the file system of DataDir and WALDir. Default the file system of the machine.
	FS vfs.FS
	// Network opens listeners and the connections to other members. Default the network of the
	// machine.
	Network Network
}

// Network opens sockets. The arguments have the same meaning as in package net.
type Network interface {
	Listen(ctx context.Context, network, address string) (net.Listener, error)
	Dial(ctx context.Context, network, address string) (net.Conn, error)
}
