package main

import (
	"errors"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"vigil/server"
)

// options is the parsed command line.
type options struct {
	config     server.Config
	log        logging
	gates      gates
	memoryLock bool
	configFile string
	version    bool

	sections    []section
	unknownVars []unknownVar
	goneFlags   []string // flags of old versions of etcd
	unusedKeys  []string // keys of the configuration file of old versions of etcd
}

// unknownVar is a variable ETCD_* without a flag, and a suggestion.
type unknownVar struct{ name, meant string }

// section is a group of flags in --help.
type section struct {
	title string
	flags []*option
}

// newOptions returns options whose flags are bound to their fields.
func newOptions() *options {
	o := &options{log: logging{level: "info", format: "json", outputs: []string{"default"},
		rotation: defaultRotation}}
	c := &o.config
	o.sections = []section{
		{"General", []*option{
			str(&o.configFile, "config-file", "FILE",
				"configuration file in YAML with etcd's keys; the environment and the command line override it"),
			boolean(&o.version, "version", "print versions and exit"),
		}},
		{"Member", memberFlags(o)},
		{"Clustering", clusterFlags(c)},
		{"Security", securityFlags(c)},
		{"Auth", []*option{
			orPreset("simple", str(&c.Auth.Token, "auth-token", "KIND",
				`kind of user tokens: "simple", or "jwt" with its options: jwt,pub-key=FILE,priv-key=FILE,sign-method=METHOD,ttl=DURATION`)),
			numberFrom(0, &c.Auth.BcryptCost, "bcrypt-cost",
				"cost of hashing a password, 4 to 31; each step doubles the time"),
			wholeUnits(time.Second, &c.Auth.TokenTTL, "auth-token-ttl", "SECONDS",
				"how long an unused simple token is valid; 0 for the default", 0, 1<<31),
		}},
		{"Profiling and Monitoring", monitoringFlags(c)},
		{"Logging", loggingFlags(o)},
		{"Distributed tracing", []*option{
			boolean(&c.Tracing.Enabled, "enable-distributed-tracing",
				"export spans by OpenTelemetry's protocol"),
			withoutUsers(str(&c.Tracing.Address, "distributed-tracing-address", "HOST:PORT",
				"address of the collector of spans"), "the collector is not sent one"),
			str(&c.Tracing.ServiceName, "distributed-tracing-service-name", "NAME",
				"name of the service in spans, the same for all members"),
			str(&c.Tracing.InstanceID, "distributed-tracing-instance-id", "ID",
				"name of this member in spans, different for each member"),
			signed(&c.Tracing.SamplingRate, "distributed-tracing-sampling-rate", "N",
				"number of traces in a million that are exported, of those without a client's trace"),
		}},
		{"Features", featureFlags(o)},
		{"Archive", archiveFlags(&c.Archive)},
		{"Unsafe", []*option{
			boolean(&c.ForceNewCluster, "force-new-cluster",
				"disaster recovery: make this member the only member of its cluster, with all its data"),
			boolean(&c.UnsafeNoSync, "unsafe-no-fsync",
				"do not wait for the disk: a power failure loses acknowledged writes"),
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
	const whenIdle = "; 0 for the transport's choice"
	return []*option{
		nonEmpty(str(&c.Name, "name", "NAME", "human-readable name of this member")),
		showDefault("NAME.etcd",
			str(&c.DataDir, "data-dir", "DIR", "directory of all data of the member")),
		showDefault("DATA-DIR/wal",
			str(&c.WALDir, "wal-dir", "DIR",
				"directory of the raft log, for instance on a separate disk")),
		numberFrom(0, &c.SnapshotCount, "snapshot-count",
			"number of applied requests after which the raft log is truncated"),
		numberFrom(0, &c.SnapshotCatchUpEntries, "snapshot-catchup-entries",
			"number of raft entries kept for slow members when the raft log is truncated"),
		numberFrom(0, &c.MaxCatchUpBytes, "max-catchup-bytes",
			"size up to which the raft log is kept for members that lag; 0 for a quarter of the free disk (not in etcd)"),
		wholeUnits(time.Millisecond, &c.HeartbeatInterval, "heartbeat-interval", "MS",
			"time between heartbeats of a leader, in milliseconds", 1, 1<<32),
		wholeUnits(time.Millisecond, &c.ElectionTimeout, "election-timeout", "MS",
			"time that a follower waits for a leader, in milliseconds; at least 5 heartbeats", 1,
			1<<32),
		inverted(&c.NoInitialElectionTickAdvance, "initial-election-tick-advance",
			"start the first election early if other members are reachable and there is no leader"),
		urls(&c.ListenPeerURLs, "listen-peer-urls",
			"URLs to serve other members on: http://IP:PORT, https://IP:PORT, unix://PATH or unixs://PATH"),
		urls(&c.ListenClientURLs, "listen-client-urls",
			"URLs to serve clients on: gRPC, and HTTP unless --listen-client-http-urls is set"),
		urls(&c.ListenClientHTTPURLs, "listen-client-http-urls",
			"URLs to serve clients on with HTTP only"),
		unused("number", "max-snapshots", "5", "there are no snapshot files"),
		unused("number", "max-wals", "5",
			"the raft log keeps the files that it needs, and recycles the others"),
		boolean(&o.memoryLock, "memory-mlock",
			"lock the memory of the process, so that it is not swapped out; requires the right to lock memory"),
		signed(&c.QuotaBackendBytes, "quota-backend-bytes", "BYTES",
			"size of live data at which puts are rejected; 0 for the default, negative for no quota"),
		unused("TYPE", "backend-bbolt-freelist-type", "map", "the store has no free list"),
		unused("duration", "backend-batch-interval", "0s",
			"the raft log makes an acknowledged write durable, and the store needs no commits"),
		unused("signed", "backend-batch-limit", "0", "the store needs no commits"),
		numberFrom(0, &c.MaxTxnOps, "max-txn-ops",
			"limit of operations in one transaction; 0 for the default"),
		number(&c.MaxRequestBytes, "max-request-bytes", "limit of the size of a request, in bytes"),
		number(&c.MaxRangeBytesInFlight, "max-range-bytes-in-flight",
			"limit of memory for large results of concurrent reads, in bytes (not in etcd)"),
		numberFrom(0, &c.MaxConcurrentStreams, "max-concurrent-streams",
			"limit of open gRPC streams of a connection"),
		durationOrNever(anyDuration, &c.KeepAliveMinTime, "grpc-keepalive-min-time",
			"shortest time allowed between two pings of a client"+whenIdle),
		durationOrNever(anyDuration, &c.KeepAliveInterval, "grpc-keepalive-interval",
			"interval of pings to an idle client"+whenIdle),
		durationOrNever(anyDuration, &c.KeepAliveTimeout, "grpc-keepalive-timeout",
			"time to wait for the answer to a ping"+whenIdle),
		boolean(&c.SocketReusePort, "socket-reuse-port",
			"allow other programs to listen on the same ports (SO_REUSEPORT)"),
		boolean(&c.SocketReuseAddress, "socket-reuse-address",
			"listen on a port that still has old connections (SO_REUSEADDR)"),
		oneOf(&c.Console, "console",
			"web interface under /console/: auto (on loopback, and everywhere while auth is enabled), on or off", "auto", "on", "off"),
		inverted(&c.NoGRPCGateway, "enable-grpc-gateway", "serve the API in JSON over HTTP too"),
		unused("duration", "raft-read-timeout", "5s",
			"members detect a dead connection by its missing heartbeats within 4 s"),
		unused("duration", "raft-write-timeout", "5s",
			"members detect a dead connection by its missing heartbeats within 4 s"),
		gateFlag(o),
	}
}

func clusterFlags(c *server.Config) []*option {
	d := &c.Discovery
	insecure := inverted(&d.TLS, "discovery-insecure-transport",
		"connect to the registry without TLS")
	password := str(&d.Password, "discovery-password", "PASSWORD", "password of that user")
	user := str(&d.User, "discovery-user", "USER", "user of the registry, NAME or NAME:PASSWORD")
	password.secret, user.secret = true, true
	return []*option{
		nonEmpty(urls(&c.InitialAdvertisePeerURLs, "initial-advertise-peer-urls",
			"URLs at which other members reach this member; part of the member's ID")),
		showDefault("this member",
			str(&c.InitialCluster, "initial-cluster", "NAME=URL,...",
				"all members of the cluster; used only if DATA-DIR is new")),
		oneOf(&c.InitialClusterState, "initial-cluster-state",
			`"new", or "existing" for a member that was added to a cluster; used only if DATA-DIR is new`, "new", "existing"),
		str(&c.InitialClusterToken, "initial-cluster-token", "TOKEN",
			"distinguishes clusters with equal URLs"),
		showDefault("the listen URLs",
			urls(&c.AdvertiseClientURLs, "advertise-client-urls",
				"URLs at which clients reach this member")),
		str(&d.Token, "discovery-token", "TOKEN",
			"token of a new cluster whose members find each other in a registry, which is another cluster"),
		withoutUsers(list(&d.Endpoints, "discovery-endpoints", "HOST:PORT,...",
			"addresses of the registry"), "set --discovery-user"),
		durationOrDefault(&d.DialTimeout, "discovery-dial-timeout",
			"timeout of a connection to the registry"),
		durationOrDefault(&d.RequestTimeout, "discovery-request-timeout",
			"timeout of a request to the registry"),
		durationOrDefault(&d.KeepAliveTime, "discovery-keepalive-time",
			"interval of pings to the registry"),
		durationOrDefault(&d.KeepAliveTimeout, "discovery-keepalive-timeout",
			"time to wait for the answer to a ping"),
		insecure,
		boolean(&d.InsecureSkipVerify, "discovery-insecure-skip-tls-verify",
			"accept every certificate of the registry"),
		file(&d.CertFile, "discovery-cert", "client certificate for the registry"),
		file(&d.KeyFile, "discovery-key", "key of the client certificate for the registry"),
		file(&d.CAFile, "discovery-cacert", "trusted certificate authorities of the registry"),
		user,
		password,
		{name: "discovery-fallback", value: "WHAT",
			noEffect: "a member that finds no cluster exits", get: func() string { return "exit" },
			set: func(s string) error {
				if s != "exit" {
					return errors.New("want exit: there is no proxy")
				}
				return nil
			}},
		str(&d.SRV, "discovery-srv", "DOMAIN",
			"find the members of a new cluster by the SRV records of a DNS domain"),
		str(&d.SRVName, "discovery-srv-name", "SUFFIX",
			"suffix of the service names of the SRV records"),
		inverted(&c.LaxReconfig, "strict-reconfig-check",
			"reject membership changes that would lose quorum"),
		inverted(&c.NoPreVote, "pre-vote",
			"hold an election only if it can be won, so that a member that was disconnected does not depose a leader"),
		str(&c.AutoCompactionRetention, "auto-compaction-retention", "N",
			"history that automatic compaction keeps: hours or a duration, or a number of revisions; 0 for no automatic compaction"),
		oneOf(&c.AutoCompactionMode, "auto-compaction-mode",
			`"periodic" keeps a period of history, "revision" a number of revisions`,
			"periodic", "revision"),
		v2Deprecation(),
	}
}

func monitoringFlags(c *server.Config) []*option {
	return []*option{
		boolean(&c.EnablePprof, "enable-pprof",
			"serve profiles under /debug/pprof on the client port"),
		{name: "metrics", value: "LEVEL", help: `"extensive" exports durations of gRPC calls too`,
			set: func(s string) error {
				// Like etcd, which takes any other word for basic.
				c.ExtensiveMetrics = s == "extensive"
				return nil
			},
			get: func() string {
				if c.ExtensiveMetrics {
					return "extensive"
				}
				return "basic"
			}},
		urls(&c.ListenMetricsURLs, "listen-metrics-urls",
			"additional URLs for /metrics and the health paths; https:// uses the certificates for clients"),
	}
}

func featureFlags(o *options) []*option {
	c := &o.config
	return []*option{
		durationOrNever(0, &c.CorruptCheckInterval, "corrupt-check-time",
			"interval at which the leader compares the data of all members; 0 for never"),
		duration(&c.CompactHashCheckInterval, "compact-hash-check-time",
			"interval at which the leader compares the hashes of compactions"),
		unused("signed", "compaction-batch-limit", "1000",
			"compaction works in slices of limited duration"),
		unused("duration", "compaction-sleep-interval", "0s",
			"compaction works in slices of limited duration"),
		durationOrDefault(&c.WatchProgressInterval, "watch-progress-notify-interval",
			"time after which an idle watcher that requested progress notifications receives one"),
		number(&c.MaxWatchersPerStream, "max-watchers-per-stream",
			"limit of watchers on one stream (not in etcd)"),
		durationOrDefault(&c.WarnApplyDuration, "warning-apply-duration",
			"time to apply a request after which the request is logged"),
		unused("number", "bootstrap-defrag-threshold-megabytes", "0",
			"space is reclaimed all the time"),
		maxLearners(&c.MaxLearners),
		unused("duration", "downgrade-check-time", "5s", "no periodic check is needed"),
		scrubRate(&c.ScrubBytesPerSecond),
		duration(&c.ScrubPause, "scrub-pause",
			"pause between two rounds of the scrubber (not in etcd)"),
	}
}

func archiveFlags(a *server.Archive) []*option {
	return []*option{
		withoutUsers(str(&a.URL, "archive", "URL",
			"bucket of the continuous archive: file:///DIR, or what vigil-bucket accepts such as s3://BUCKET?region=REGION; the same for all members (not in etcd)"),
			"set the environment variables of the cloud's programs"),
		list(&a.Recipients, "archive-recipient", "KEY,...",
			"public keys of age to which the archive is encrypted (not in etcd)"),
		duration(&a.Interval, "archive-interval",
			"interval at which new entries are sent to the archive (not in etcd)"),
		signed(&a.MaxLagBytes, "archive-max-lag-bytes", "BYTES",
			"limit of the raft log that is kept for the archive beyond what the member keeps anyway; 0 for the default (not in etcd)"),
		duration(&a.BaseInterval, "archive-base-interval",
			"time after which a new base state is archived if anything was written (not in etcd)"),
		signed(&a.BaseBytes, "archive-base-bytes", "BYTES",
			"size of what was sent after which a new base state is archived; 0 for the default (not in etcd)"),
		duration(&a.FullInterval, "archive-full-interval",
			"age from which on no new base state lists an object: what it has is sent again (not in etcd)"),
		showDefault("vigil-bucket",
			file(&a.Program, "archive-program",
				"program for buckets other than directories (not in etcd)")),
	}
}

// v2Deprecation accepts the stages that etcd still has.
func v2Deprecation() *option {
	stage := "write-only"
	o := oneOf(&stage, "v2-deprecation", "", "write-only", "write-only-drop-data", "gone")
	o.value, o.noEffect = "STAGE", "there is no v2 store"
	return o
}

// maxLearners is 0 for none. The field of Config is negative for that.
func maxLearners(p *int) *option {
	o := numberFrom(0, p, "max-learners", "limit of learners in the cluster; 0 for none")
	set, get := o.set, o.get
	o.set = func(s string) error {
		err := set(s)
		if err == nil && *p == 0 {
			*p = -1
		}
		return err
	}
	o.get = func() string {
		if *p < 0 {
			return "0"
		}
		return get()
	}
	return o
}

// scrubRate is 0 for never. The field of Config is negative for that.
func scrubRate(p *int64) *option {
	o := signed(p, "scrub-bytes-per-second", "BYTES",
		"rate at which the scrubber reads stored data to find damage; 0 for no scrubber (not in etcd)")
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

// oneLine returns the text of an error on one line. It escapes characters and bytes in the input of
// others that a terminal acts on.
func oneLine(err error) string { return escape(strings.ReplaceAll(err.Error(), "\n", "; ")) }

// escape escapes characters that would control a terminal or begin a line.
func escape(text string) string {
	var b strings.Builder
	for text != "" {
		r, n := utf8.DecodeRuneInString(text)
		if r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			q := strconv.Quote(text[:n])
			b.WriteString(q[1 : len(q)-1])
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}
