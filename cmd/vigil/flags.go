package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"vigil/server"
)

// options is the command line after parsing.
type options struct {
	config     server.Config
	log        logging
	gates      gates
	memoryLock bool
	configFile string
	version    bool

	sections    []section
	unknownVars []string // ETCD_* variables that name no flag
	goneFlags   []string // flags that only old versions of etcd had
	unusedKeys  []string // keys of the configuration file that old versions of etcd had
}

// section is a group of flags in --help.
type section struct {
	title string
	flags []*option
}

// newOptions binds every flag to its field of what it returns.
func newOptions() *options {
	o := &options{log: logging{level: "info", format: "json", outputs: []string{"default"}, rotation: defaultRotation}}
	c := &o.config
	o.sections = []section{
		{"General", []*option{
			str(&o.configFile, "config-file", "FILE", "a configuration file in YAML with etcd's keys; the environment and the command line win over it"),
			boolean(&o.version, "version", "print versions and exit"),
		}},
		{"Member", memberFlags(o)},
		{"Clustering", clusterFlags(c)},
		{"Security", securityFlags(c)},
		{"Auth", []*option{
			needed(str(&c.Auth.Token, "auth-token", "KIND", `tokens of users: "simple", or "jwt" with its options: jwt,pub-key=FILE,priv-key=FILE,sign-method=METHOD,ttl=DURATION`)),
			number(&c.Auth.BcryptCost, "bcrypt-cost", "cost of hashing a password, 4 to 31; each step doubles the time"),
			in(time.Second, &c.Auth.TokenTTL, "auth-token-ttl", "SECONDS", "how long a simple token is valid that is not used", 1<<31),
		}},
		{"Profiling and Monitoring", monitoringFlags(c)},
		{"Logging", loggingFlags(o)},
		{"Distributed tracing", []*option{
			boolean(&c.Tracing.Enabled, "enable-distributed-tracing", "export spans by OpenTelemetry's protocol"),
			str(&c.Tracing.Address, "distributed-tracing-address", "HOST:PORT", "the collector of spans"),
			str(&c.Tracing.ServiceName, "distributed-tracing-service-name", "NAME", "name of the service in them, the same at all members"),
			str(&c.Tracing.InstanceID, "distributed-tracing-instance-id", "ID", "name of this member in them, another at each"),
			numberFrom(0, &c.Tracing.SamplingRate, "distributed-tracing-sampling-rate", "traces of a million that are exported if they begin here"),
		}},
		{"Features", featureFlags(o)},
		{"Unsafe", []*option{
			boolean(&c.ForceNewCluster, "force-new-cluster", "disaster recovery: make this member the only one, with all its data"),
			boolean(&c.UnsafeNoSync, "unsafe-no-fsync", "do not wait for the disk: a power failure loses acknowledged writes"),
		}},
	}
	return o
}

// each calls f with every option.
func (o *options) each(f func(*option)) {
	for _, s := range o.sections {
		for _, opt := range s.flags {
			f(opt)
		}
	}
}

func memberFlags(o *options) []*option {
	c := &o.config
	const whenIdle = "; 0 leaves it to the transport"
	return []*option{
		needed(str(&c.Name, "name", "NAME", "name of this member for people")),
		by("NAME.etcd", str(&c.DataDir, "data-dir", "DIR", "directory of everything the member stores")),
		by("DATA-DIR/wal", str(&c.WALDir, "wal-dir", "DIR", "directory of the raft log, to put it on a disk of its own")),
		numberFrom(0, &c.SnapshotCount, "snapshot-count", "applied requests after which the raft log is cut"),
		numberFrom(0, &c.SnapshotCatchUpEntries, "snapshot-catchup-entries", "raft entries kept behind the cut for slow members"),
		in(time.Millisecond, &c.HeartbeatInterval, "heartbeat-interval", "MS", "time between heartbeats of a leader, in milliseconds", 1<<32),
		in(time.Millisecond, &c.ElectionTimeout, "election-timeout", "MS", "time a follower waits for a leader, in milliseconds; at least 5 heartbeats", 1<<32),
		not(&c.NoInitialElectionTickAdvance, "initial-election-tick-advance", "hold the first election early when other members are there and no leader is"),
		needed(urls(&c.ListenPeerURLs, "listen-peer-urls", "where other members connect: http://IP:PORT, https://IP:PORT, unix://PATH or unixs://PATH")),
		needed(urls(&c.ListenClientURLs, "listen-client-urls", "where clients are served, likewise: gRPC, and HTTP unless --listen-client-http-urls has it")),
		urls(&c.ListenClientHTTPURLs, "listen-client-http-urls", "where HTTP is served to clients, and nothing else"),
		unused("number", "max-snapshots", "5", "there are no snapshot files to keep"),
		unused("number", "max-wals", "5", "the raft log keeps what is needed and uses its files again"),
		boolean(&o.memoryLock, "memory-mlock", "keep the process's memory from being swapped out; needs the right to lock memory"),
		signed(&c.QuotaBackendBytes, "quota-backend-bytes", "BYTES", "live data at which puts are refused until there is less; 0 for the default, negative for no quota"),
		unused("TYPE", "backend-bbolt-freelist-type", "map", "the store has no such list"),
		unused("duration", "backend-batch-interval", "0s", "a write is as durable as the raft log when it is acknowledged, and the store needs no commits"),
		unused("number", "backend-batch-limit", "0", "the store needs no commits"),
		number(&c.MaxTxnOps, "max-txn-ops", "operations in one transaction"),
		number(&c.MaxRequestBytes, "max-request-bytes", "bytes of one request"),
		number(&c.MaxRangeBytesInFlight, "max-range-bytes-in-flight", "memory of the large results of reads that are under way, in bytes (not in etcd)"),
		numberFrom(0, &c.MaxConcurrentStreams, "max-concurrent-streams", "open gRPC streams of one connection"),
		orNever(&c.KeepAliveMinTime, "grpc-keepalive-min-time", "least time between two pings of a client"+whenIdle),
		orNever(&c.KeepAliveInterval, "grpc-keepalive-interval", "how often an idle client is pinged"+whenIdle),
		orNever(&c.KeepAliveTimeout, "grpc-keepalive-timeout", "how long a ping may stay unanswered"+whenIdle),
		boolean(&c.SocketReusePort, "socket-reuse-port", "let other programs listen on the same ports (SO_REUSEPORT)"),
		boolean(&c.SocketReuseAddress, "socket-reuse-address", "listen on a port of which old connections linger (SO_REUSEADDR)"),
		not(&c.NoGRPCGateway, "enable-grpc-gateway", "serve the API in JSON over HTTP, too"),
		unused("duration", "raft-read-timeout", "5s", "members tell by signs of life within 4 s that a connection is dead"),
		unused("duration", "raft-write-timeout", "5s", "members tell by signs of life within 4 s that a connection is dead"),
		gateFlag(o),
	}
}

func clusterFlags(c *server.Config) []*option {
	d := &c.Discovery
	insecure := not(&d.TLS, "discovery-insecure-transport", "connect to the registry without TLS")
	password := str(&d.Password, "discovery-password", "PASSWORD", "its password")
	user := str(&d.User, "discovery-user", "USER", "user of the registry, NAME or NAME:PASSWORD")
	password.secret, user.secret = true, true
	return []*option{
		needed(urls(&c.InitialAdvertisePeerURLs, "initial-advertise-peer-urls", "what other members are told to dial; part of the member's id")),
		by("this member", str(&c.InitialCluster, "initial-cluster", "NAME=URL,...", "all members of the cluster; read only when DATA-DIR is new")),
		oneOf(&c.InitialClusterState, "initial-cluster-state", `"new", or "existing" for a member that was added to a cluster; read only when DATA-DIR is new`, "new", "existing"),
		needed(str(&c.InitialClusterToken, "initial-cluster-token", "TOKEN", "tells clusters with equal URLs apart")),
		by("the listen URLs", urls(&c.AdvertiseClientURLs, "advertise-client-urls", "what clients are told to dial")),
		str(&d.Token, "discovery-token", "TOKEN", "find the members of a new cluster by this token in a registry, which is another cluster"),
		list(&d.Endpoints, "discovery-endpoints", "HOST:PORT,...", "where the registry is"),
		duration(&d.DialTimeout, "discovery-dial-timeout", "how long connecting to it may take"),
		duration(&d.RequestTimeout, "discovery-request-timeout", "how long a request to it may take"),
		duration(&d.KeepAliveTime, "discovery-keepalive-time", "how often it is pinged"),
		duration(&d.KeepAliveTimeout, "discovery-keepalive-timeout", "how long a ping may stay unanswered"),
		insecure,
		boolean(&d.InsecureSkipVerify, "discovery-insecure-skip-tls-verify", "believe every certificate of the registry"),
		file(&d.CertFile, "discovery-cert", "certificate that is shown to the registry"),
		file(&d.KeyFile, "discovery-key", "its key"),
		file(&d.CAFile, "discovery-cacert", "authorities whose certificates are believed"),
		user,
		password,
		{name: "discovery-fallback", value: "WHAT", noEffect: "a member that finds no cluster always exits", get: func() string { return "exit" },
			set: func(s string) error {
				if s != "exit" {
					return errors.New("want exit: there is no proxy")
				}
				return nil
			}},
		str(&d.SRV, "discovery-srv", "DOMAIN", "find the members of a new cluster by the SRV records of a DNS domain"),
		str(&d.SRVName, "discovery-srv-name", "SUFFIX", "end of the names of the services that are asked for"),
		not(&c.LaxReconfig, "strict-reconfig-check", "refuse changes of the membership that would lose quorum"),
		not(&c.NoPreVote, "pre-vote", "ask before an election whether it can be won, so that a member that was away does not disturb a leader"),
		str(&c.AutoCompactionRetention, "auto-compaction-retention", "N", "history that automatic compaction leaves: hours or a duration, or revisions; 0 for none"),
		oneOf(&c.AutoCompactionMode, "auto-compaction-mode", `"periodic" compacts by time, "revision" by number`, "periodic", "revision"),
		unused("STAGE", "v2-deprecation", "write-only", "there is no v2 store"),
	}
}

func monitoringFlags(c *server.Config) []*option {
	return []*option{
		boolean(&c.EnablePprof, "enable-pprof", "serve profiles under /debug/pprof on the client port"),
		{name: "metrics", value: "LEVEL", help: `"extensive" exports how long gRPC calls take, too`,
			set: func(s string) error {
				if s != "basic" && s != "extensive" {
					return errors.New("want basic or extensive")
				}
				c.ExtensiveMetrics = s == "extensive"
				return nil
			},
			get: func() string {
				if c.ExtensiveMetrics {
					return "extensive"
				}
				return "basic"
			}},
		urls(&c.ListenMetricsURLs, "listen-metrics-urls", "where /metrics and the health paths are served besides the client port; https:// by the certificates of clients"),
	}
}

func featureFlags(o *options) []*option {
	c := &o.config
	return []*option{
		orNever(&c.CorruptCheckInterval, "corrupt-check-time", "how often the leader compares the data of all members; 0 for never"),
		duration(&c.CompactHashCheckInterval, "compact-hash-check-time", "how often the leader compares the hashes that compactions have left"),
		unused("number", "compaction-batch-limit", "1000", "compaction works in slices of bounded time"),
		unused("duration", "compaction-sleep-interval", "0s", "compaction works in slices of bounded time"),
		orDefault(&c.WatchProgressInterval, "watch-progress-notify-interval", "how often a quiet watcher that asked for it hears of progress"),
		number(&c.MaxWatchersPerStream, "max-watchers-per-stream", "watchers on one stream (not in etcd)"),
		orDefault(&c.WarnApplyDuration, "warning-apply-duration", "how long applying a request may take before that is logged"),
		unused("number", "bootstrap-defrag-threshold-megabytes", "0", "space is reclaimed all the time"),
		number(&c.MaxLearners, "max-learners", "learners there may be"),
		unused("duration", "downgrade-check-time", "5s", "nothing has to be checked periodically"),
		scrubRate(&c.ScrubBytesPerSecond),
		duration(&c.ScrubPause, "scrub-pause", "rest between two rounds of that (not in etcd)"),
	}
}

// scrubRate is 0 for never, which Config says with a negative number.
func scrubRate(p *int64) *option {
	o := signed(p, "scrub-bytes-per-second", "BYTES", "how fast stored data is read over and over to find damage; 0 for never (not in etcd)")
	o.set = func(s string) error {
		v, err := strconv.ParseInt(s, 0, 64)
		if err != nil || v < 0 {
			return errors.New("want a whole number of bytes from 0")
		}
		if *p = v; v == 0 {
			*p = -1
		}
		return nil
	}
	o.get = func() string { return strconv.FormatInt(max(*p, 0), 10) }
	return o
}

// oneLine puts an error of several lines on one.
func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
