package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"vigil/server"
)

// options is the command line after parsing.
type options struct {
	config      server.Config
	version     bool
	logLevel    slog.Level
	logFormat   string
	logOutputs  []string
	unknownVars []string // ETCD_* variables that name no flag
}

// section is a group of flags in --help.
type section struct {
	title string
	flags []*option
}

// option is one flag: its etcd name, what stands for its value in --help, and its help.
type option struct {
	name, value, help string
	shown             string // the default, as --help prints it
	set               func(string) error
	isBool            bool
}

// Set, String and IsBoolFlag make an option a flag.Value.
func (o *option) Set(s string) error { return o.set(s) }
func (o *option) String() string     { return o.shown }
func (o *option) IsBoolFlag() bool   { return o.isBool }

// sections binds every flag to its field of o.
func sections(o *options) []section {
	c := &o.config
	d := server.Config{}.WithDefaults()
	return []section{
		{"Member", []*option{
			str(&c.Name, "name", "NAME", d.Name, "name of this member for people"),
			str(&c.DataDir, "data-dir", "DIR", "NAME.etcd", "directory of everything the member stores"),
			str(&c.WALDir, "wal-dir", "DIR", "DATA-DIR/wal", "directory of the raft log, to put it on a disk of its own"),
			urls(&c.ListenClientURLs, "listen-client-urls", server.DefaultClientURL, "where clients are served: http://IP:PORT or unix://PATH"),
			urls(&c.AdvertiseClientURLs, "advertise-client-urls", "the listen URLs", "what clients are told to dial"),
			urls(&c.ListenMetricsURLs, "listen-metrics-urls", "none", "where /metrics and the health paths are served besides the client port"),
			urls(&c.ListenPeerURLs, "listen-peer-urls", "none", "where other members connect: http://IP:PORT, https://IP:PORT or unix://PATH; a single member opens it only if told"),
		}},
		{"Cluster", []*option{
			urls(&c.InitialAdvertisePeerURLs, "initial-advertise-peer-urls", server.DefaultPeerURL, "what other members are told to dial; part of the member's id"),
			str(&c.InitialCluster, "initial-cluster", "NAME=URL,...", "this member", "all members of the cluster; read only when DATA-DIR is new"),
			str(&c.InitialClusterState, "initial-cluster-state", "STATE", d.InitialClusterState, `"new", or "existing" for a member that was added to a cluster`),
			str(&c.InitialClusterToken, "initial-cluster-token", "TOKEN", d.InitialClusterToken, "tells clusters with equal URLs apart"),
			not(&c.LaxReconfig, "strict-reconfig-check", "refuse changes of the membership that would lose quorum"),
			number(&c.MaxLearners, "max-learners", d.MaxLearners, "learners there may be"),
			boolean(&c.ForceNewCluster, "force-new-cluster", "disaster recovery: make this member the only one, with all its data"),
			boolean(new(bool), "pre-vote", "accepted; elections always begin with a pre-vote"),
			millis(&c.HeartbeatInterval, "heartbeat-interval", d.HeartbeatInterval, "time between heartbeats of a leader, in milliseconds"),
			millis(&c.ElectionTimeout, "election-timeout", d.ElectionTimeout, "time a follower waits for a leader, in milliseconds; at least 5 heartbeats"),
		}},
		{"Security between members", []*option{
			str(&c.PeerTLS.CertFile, "peer-cert-file", "FILE", "none", "certificate that is shown to other members"),
			str(&c.PeerTLS.KeyFile, "peer-key-file", "FILE", "none", "its key"),
			str(&c.PeerTLS.ClientCertFile, "peer-client-cert-file", "FILE", "--peer-cert-file", "another certificate for connections to other members"),
			str(&c.PeerTLS.ClientKeyFile, "peer-client-key-file", "FILE", "--peer-key-file", "its key"),
			str(&c.PeerTLS.TrustedCAFile, "peer-trusted-ca-file", "FILE", "none", "authorities whose certificates are believed"),
			boolean(&c.PeerTLS.ClientCertAuth, "peer-client-cert-auth", "require a certificate of members that connect"),
			list(&c.PeerTLS.AllowedCN, "peer-cert-allowed-cn", "CN,...", "common names, one of which the certificate of a member that connects must have"),
			list(&c.PeerTLS.AllowedHostname, "peer-cert-allowed-hostname", "HOST,...", "host names, one of which it must be valid for"),
			str(&c.PeerTLS.CRLFile, "peer-crl-file", "FILE", "none", "list of revoked certificates"),
			boolean(&c.PeerTLS.Auto, "peer-auto-tls", "encrypt with a certificate made at the first start, and believe every one"),
			boolean(new(bool), "peer-skip-client-san-verification", "accepted; the names in a certificate are not compared with addresses"),
			{name: "self-signed-cert-validity", value: "YEARS", shown: "1", help: "years that a certificate made here is valid", set: func(s string) error {
				v, err := strconv.ParseUint(s, 10, 8)
				if err != nil || v == 0 {
					return errors.New("want a whole number of years from 1 to 255")
				}
				c.PeerTLS.Validity = time.Duration(v) * 365 * 24 * time.Hour
				return nil
			}},
		}},
		{"Limits", []*option{
			number(&c.MaxTxnOps, "max-txn-ops", d.MaxTxnOps, "operations in one transaction"),
			number(&c.MaxRequestBytes, "max-request-bytes", d.MaxRequestBytes, "bytes of one request"),
			number(&c.MaxRangeBytesInFlight, "max-range-bytes-in-flight", d.MaxRangeBytesInFlight, "memory of the large results of reads that are under way, in bytes"),
			number(&c.MaxConcurrentStreams, "max-concurrent-streams", d.MaxConcurrentStreams, "open gRPC streams of one connection"),
			duration(&c.KeepAliveMinTime, "grpc-keepalive-min-time", d.KeepAliveMinTime, "least time between two pings of a client"),
			duration(&c.KeepAliveInterval, "grpc-keepalive-interval", d.KeepAliveInterval, "how often an idle client is pinged"),
			duration(&c.KeepAliveTimeout, "grpc-keepalive-timeout", d.KeepAliveTimeout, "how long a ping may stay unanswered"),
			number(&c.MaxWatchersPerStream, "max-watchers-per-stream", d.MaxWatchersPerStream, "watchers on one stream (not in etcd)"),
			duration(&c.WatchProgressInterval, "watch-progress-notify-interval", d.WatchProgressInterval, "how often a quiet watcher that asked for it hears of progress"),
		}},
		{"Storage", []*option{
			number(&c.SnapshotCount, "snapshot-count", d.SnapshotCount, "applied requests after which the raft log is cut"),
			number(&c.SnapshotCatchUpEntries, "snapshot-catchup-entries", d.SnapshotCatchUpEntries, "raft entries kept behind the cut for slow members"),
			quota(&c.QuotaBackendBytes, d.QuotaBackendBytes),
			str(&c.AutoCompactionMode, "auto-compaction-mode", "MODE", d.AutoCompactionMode, `what old history is: "periodic" or "revision"`),
			str(&c.AutoCompactionRetention, "auto-compaction-retention", "KEEP", d.AutoCompactionRetention,
				"history to keep: hours or a duration such as 90m if periodic, a number of revisions otherwise; 0 for all of it"),
			rate(&c.ScrubBytesPerSecond, d.ScrubBytesPerSecond),
			duration(&c.ScrubPause, "scrub-pause", d.ScrubPause, "rest between two rounds of reading"),
			orNever(&c.CorruptCheckInterval, "corrupt-check-time", d.CorruptCheckInterval, "how often the leader compares the data of all members; 0 for never"),
			duration(&c.CompactHashCheckInterval, "compact-hash-check-time", d.CompactHashCheckInterval, "how often the leader compares the hashes that compactions have left"),
			gates(c),
			boolean(&c.UnsafeNoSync, "unsafe-no-fsync", "do not wait for the disk: a power failure loses acknowledged writes"),
		}},
		{"Logs and insight", []*option{
			{name: "log-level", value: "LEVEL", shown: "info", help: "debug, info, warn or error", set: o.setLevel},
			{name: "log-format", value: "FORMAT", shown: "json", help: "json, or console for people", set: o.setFormat},
			{name: "log-outputs", value: "OUT,...", shown: "default", help: "stderr (default), stdout, or paths of files to append to", set: func(s string) error {
				o.logOutputs = splitList(s)
				return nil
			}},
			boolean(&c.EnablePprof, "enable-pprof", "serve profiles under /debug/pprof on the client port"),
			boolean(&o.version, "version", "print versions and exit"),
		}},
	}
}

func str(p *string, name, value, shown, help string) *option {
	return &option{name: name, value: value, shown: shown, help: help, set: func(s string) error {
		if s == "" {
			return errors.New("must not be empty")
		}
		*p = s
		return nil
	}}
}

func urls(p *[]string, name, shown, help string) *option {
	return &option{name: name, value: "URL,...", shown: shown, help: help, set: func(s string) error {
		list := splitList(s)
		if len(list) == 0 {
			return errors.New("needs at least one URL")
		}
		*p = list
		return nil
	}}
}

func list(p *[]string, name, value, help string) *option {
	return &option{name: name, value: value, help: help, set: func(s string) error {
		*p = splitList(s)
		return nil
	}}
}

// not is a flag that is on by default: p is set when it is off.
func not(p *bool, name, help string) *option {
	return &option{name: name, shown: "true", help: help, isBool: true, set: func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("want true or false")
		}
		*p = !v
		return nil
	}}
}

func boolean(p *bool, name, help string) *option {
	return &option{name: name, help: help, isBool: true, set: func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return errors.New("want true or false")
		}
		*p = v
		return nil
	}}
}

func duration(p *time.Duration, name string, dflt time.Duration, help string) *option {
	return &option{name: name, value: "DURATION", shown: dflt.String(), help: help, set: func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil || v <= 0 {
			return errors.New("want a duration above 0 such as 5s or 1m30s")
		}
		*p = v
		return nil
	}}
}

// orNever is a duration of which 0 means never, which Config says with a negative one.
func orNever(p *time.Duration, name string, dflt time.Duration, help string) *option {
	return &option{name: name, value: "DURATION", shown: dflt.String(), help: help, set: func(s string) error {
		v, err := time.ParseDuration(s)
		if err != nil || v < 0 {
			return errors.New("want a duration such as 5s or 1m30s, or 0")
		}
		if *p = v; v == 0 {
			*p = -1
		}
		return nil
	}}
}

// gates takes etcd's feature gates. Two of them are switches here, and on unless told.
func gates(c *server.Config) *option {
	known := []string{"AllAlpha", "AllBeta", "CompactHashCheck", "FastLeaseKeepAlive", "InitialCorruptCheck", "LeaseCheckpoint",
		"LeaseCheckpointPersist", "PriorityRequest", "SetMemberLocalAddr", "StopGRPCServiceOnDefrag", "TxnModeWriteWithSharedBuffer"}
	return &option{name: "feature-gates", value: "NAME=BOOL,...", shown: "InitialCorruptCheck=true,CompactHashCheck=true",
		help: "compare with other members before serving; compare the hashes of compactions; etcd's other gates are accepted and have no effect",
		set: func(s string) error {
			for _, part := range splitList(s) {
				name, value, _ := strings.Cut(part, "=")
				on, err := strconv.ParseBool(value)
				switch {
				case !slices.Contains(known, name):
					return fmt.Errorf("no feature gate is called %q", name)
				case err != nil:
					return fmt.Errorf("%s: want true or false", name)
				case name == "InitialCorruptCheck":
					c.NoInitialCorruptCheck = !on
				case name == "CompactHashCheck":
					c.NoCompactHashCheck = !on
				}
			}
			return nil
		}}
}

func millis(p *time.Duration, name string, dflt time.Duration, help string) *option {
	shown := strconv.FormatInt(dflt.Milliseconds(), 10)
	return &option{name: name, value: "MS", shown: shown, help: help, set: func(s string) error {
		v, err := strconv.ParseUint(s, 10, 32)
		if err != nil || v == 0 {
			return errors.New("want a whole number of milliseconds above 0")
		}
		*p = time.Duration(v) * time.Millisecond
		return nil
	}}
}

// quota takes etcd's values: 0 is the default, and a negative number means none.
func quota(p *int64, dflt int64) *option {
	return &option{name: "quota-backend-bytes", value: "BYTES", shown: fmt.Sprint(dflt),
		help: "live data at which puts are refused until there is less; negative for no quota", set: func(s string) error {
			v, err := strconv.ParseInt(s, 10, 64)
			if err != nil {
				return errors.New("want a whole number of bytes")
			}
			*p = v
			return nil
		}}
}

// rate is 0 for never, which Config says with a negative number.
func rate(p *int64, dflt int64) *option {
	return &option{name: "scrub-bytes-per-second", value: "BYTES", shown: fmt.Sprint(dflt),
		help: "how fast stored data is read over and over to find damage; 0 for never", set: func(s string) error {
			v, err := strconv.ParseInt(s, 10, 64)
			if err != nil || v < 0 {
				return errors.New("want a whole number of bytes from 0")
			}
			if *p = v; v == 0 {
				*p = -1
			}
			return nil
		}}
}

func number[T int | int64 | uint32 | uint64](p *T, name string, dflt T, help string) *option {
	return &option{name: name, value: "N", shown: fmt.Sprint(dflt), help: help, set: func(s string) error {
		v, err := strconv.ParseUint(s, 10, 63)
		if err != nil || v == 0 || uint64(T(v)) != v {
			return fmt.Errorf("want a whole number from 1 to %d", maxOf[T]())
		}
		*p = T(v)
		return nil
	}}
}

func maxOf[T int | int64 | uint32 | uint64]() uint64 {
	var v T
	switch any(v).(type) {
	case uint32:
		return math.MaxUint32
	default:
		return math.MaxInt64
	}
}

func (o *options) setLevel(s string) error {
	switch s {
	case "debug":
		o.logLevel = slog.LevelDebug
	case "info":
		o.logLevel = slog.LevelInfo
	case "warn":
		o.logLevel = slog.LevelWarn
	case "error":
		o.logLevel = slog.LevelError
	default:
		return errors.New("want debug, info, warn or error")
	}
	return nil
}

func (o *options) setFormat(s string) error {
	if s != "json" && s != "console" {
		return errors.New("want json or console")
	}
	o.logFormat = s
	return nil
}

func splitList(s string) []string {
	var list []string
	for _, part := range strings.Split(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			list = append(list, part)
		}
	}
	return list
}

// errUsage marks a mistake in the command line; the text names the flag.
var errUsage = errors.New("see vigil --help")

// parse reads the environment and then the arguments, which win. It returns flag.ErrHelp if help
// was asked for.
func parse(args, environ []string) (*options, error) {
	o := &options{logFormat: "json", logOutputs: []string{"default"}}
	set := flag.NewFlagSet("vigil", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	byVar := map[string]*option{}
	for _, sec := range sections(o) {
		for _, f := range sec.flags {
			set.Var(f, f.name, f.help)
			byVar["ETCD_"+strings.ToUpper(strings.ReplaceAll(f.name, "-", "_"))] = f
		}
	}
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		if !strings.HasPrefix(name, "ETCD_") || value == "" {
			continue
		}
		f, ok := byVar[name]
		if !ok {
			o.unknownVars = append(o.unknownVars, name)
			continue
		}
		if err := f.set(value); err != nil {
			return nil, fmt.Errorf("environment variable %s=%q: %w (%w)", name, value, err, errUsage)
		}
	}
	slices.Sort(o.unknownVars)
	if err := set.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil, err
		}
		return nil, fmt.Errorf("%w (%w)", err, errUsage)
	}
	if set.NArg() > 0 {
		return nil, fmt.Errorf("%q is not a flag (%w)", set.Arg(0), errUsage)
	}
	return o, nil
}

// usage writes the help text.
func usage(w io.Writer) {
	fmt.Fprint(w, `Vigil is a durable, watchable key-value store that speaks the etcd v3 API.

Start a member with its data in ./default.etcd, serving clients on 127.0.0.1:2379:

  vigil

Try it from another terminal with any etcd client:

  etcdctl put greeting hello
  etcdctl get greeting
  etcdctl watch greeting --rev=1

Each flag can also be set by an environment variable: --data-dir by ETCD_DATA_DIR, and so on.
The command line wins. A flag that is given twice has its last value.
`)
	for _, sec := range sections(new(options)) {
		fmt.Fprintf(w, "\n%s:\n", sec.title)
		for _, f := range sec.flags {
			head := "--" + f.name
			if f.value != "" {
				head += " " + f.value
			}
			fmt.Fprintf(w, "  %-44s %s", head, f.help)
			if f.shown != "" {
				fmt.Fprintf(w, " (default %s)", f.shown)
			}
			fmt.Fprintln(w)
		}
	}
}

// environ returns the process environment.
func environ() []string { return os.Environ() }

// oneLine puts an error of several lines on one.
func oneLine(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "; ")
}
