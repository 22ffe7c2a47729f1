package config

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// home is the one place of a default: an expression in a package. changed replaces it, and shown is
// then the effective value.
type home struct{ dir, expression, changed, shown string }

var homes = map[string]home{
	"heartbeat-interval": {"internal/member/replica", `TickInterval, 100\*time.Millisecond`,
		"TickInterval, 60*time.Millisecond", "60"},
	// of 60 ms
	"election-timeout": {"internal/member/raftnode", `DefaultElectionTicks = 10`,
		"DefaultElectionTicks = 20", "1200"},
	"snapshot-count": {"internal/member/replica", `SnapshotCount, 10000`,
		"SnapshotCount, 10001", "10001"},
	"snapshot-catchup-entries": {"internal/member/replica", `SnapshotCatchUpEntries, 5000`,
		"SnapshotCatchUpEntries, 5001", "5001"},
	"quota-backend-bytes": {"internal/member/replica", `DefaultQuotaBytes += 2 << 30`,
		"DefaultQuotaBytes = 3 << 30", "3221225472"},
	"scrub-bytes-per-second": {"internal/member/replica", `DefaultScrubBytesPerSecond += 8 << 20`,
		"DefaultScrubBytesPerSecond = 9 << 20", "9437184"},
	"scrub-pause": {"internal/member/replica", `ScrubPause, time.Hour`,
		"ScrubPause, 2*time.Hour", "2h0m0s"},
	"corrupt-check-time": {"internal/member/replica", `CorruptCheckInterval, 10\*time.Minute`,
		"CorruptCheckInterval, 11*time.Minute", "11m0s"},
	"compact-hash-check-time": {"internal/member/replica",
		`CompactHashCheckInterval, time.Minute`,
		"CompactHashCheckInterval, 2*time.Minute", "2m0s"},
	"archive-interval": {"internal/member/archiver", `DefaultInterval += time.Second`,
		"DefaultInterval = 2*time.Second", "2s"},
	"archive-max-lag-bytes": {"internal/member/archiver", `DefaultMaxLagBytes += 1 << 30`,
		"DefaultMaxLagBytes = 2 << 30", "2147483648"},
	"archive-base-interval": {"internal/member/archiver", `DefaultBaseInterval += time.Hour`,
		"DefaultBaseInterval = 2*time.Hour", "2h0m0s"},
	"archive-base-bytes": {"internal/member/archiver", `DefaultBaseBytes += 1 << 30`,
		"DefaultBaseBytes = 2 << 30", "2147483648"},
	"archive-full-interval": {"internal/member/archiver", `DefaultFullInterval = 7 \*`,
		"DefaultFullInterval = 8 *", "192h0m0s"},
	"max-learners": {"internal/member/replica", `MaxLearners, 1\)`,
		"MaxLearners, 2)", "2"},
	"warning-apply-duration": {"internal/member/replica",
		`WarnApplyDuration, 100\*time.Millisecond`,
		"WarnApplyDuration, 110*time.Millisecond", "110ms"},

	"auto-compaction-mode": {"internal/member/compactor", `DefaultMode += Periodic`,
		"DefaultMode = Revision", "revision"},
	"auto-compaction-retention": {"internal/member/compactor", `DefaultRetention = "0"`,
		`DefaultRetention = "7"`, "7"},

	"discovery-dial-timeout": {"internal/member/discovery", `DialTimeout, 2 \* time.Second`,
		"DialTimeout, 3 * time.Second", "3s"},
	"discovery-request-timeout": {"internal/member/discovery", `RequestTimeout, 5 \* time.Second`,
		"RequestTimeout, 7 * time.Second", "7s"},
	"discovery-keepalive-time": {"internal/member/discovery", `KeepAliveTime, 2 \* time.Second`,
		"KeepAliveTime, 4 * time.Second", "4s"},
	"discovery-keepalive-timeout": {"internal/member/discovery",
		`KeepAliveTimeout, 6 \* time.Second`, "KeepAliveTimeout, 8 * time.Second", "8s"},

	"auth-token": {"internal/state/auth/token", `DefaultKind = KindSimple`,
		`DefaultKind = "jwt,x=y"`, "jwt,x=y"},
	"auth-token-ttl": {"internal/state/auth/token", `DefaultTTL = 5 \* time.Minute`,
		"DefaultTTL = 6 * time.Minute", "360"},
	"bcrypt-cost": {"internal/state/auth/password", `DefaultCost = bcrypt.DefaultCost`,
		"DefaultCost = 11", "11"},
	"max-request-bytes": {"internal/kv", `DefaultMaxRequestBytes = 3 << 19`,
		"DefaultMaxRequestBytes = 5 << 19", "2621440"},

	"max-range-bytes-in-flight": {"internal/store/ration", `DefaultLimit = 256 << 20`,
		"DefaultLimit = 128 << 20", "134217728"},
	"watch-progress-notify-interval": {"internal/store/watch", `ProgressInterval, 10\*time.Minute`,
		"ProgressInterval, 12*time.Minute", "12m0s"},
	"max-watchers-per-stream": {"internal/store/watch", `StreamWatchers, 1_000_000`,
		"StreamWatchers, 1_000_001", "1000001"},

	"max-txn-ops": {"internal/edge/rpc", `MaxTxnOps, 128`,
		"MaxTxnOps, 129", "129"},
	"console": {"server", `Console, console\.Auto`,
		"Console, console.On", "on"},
	"max-concurrent-streams": {"internal/edge/rpc", `MaxConcurrentStreams, math.MaxUint32`,
		"MaxConcurrentStreams, math.MaxUint16", "65535"},
	"grpc-keepalive-min-time": {"internal/edge/rpc", `KeepAliveMinTime, 5\*time.Second`,
		"KeepAliveMinTime, 6*time.Second", "6s"},
	"grpc-keepalive-interval": {"internal/edge/rpc", `KeepAliveInterval, 2\*time.Hour`,
		"KeepAliveInterval, 3*time.Hour", "3h0m0s"},
	"grpc-keepalive-timeout": {"internal/edge/rpc", `KeepAliveTimeout, 20\*time.Second`,
		"KeepAliveTimeout, 21*time.Second", "21s"},
	"warning-unary-request-duration": {"internal/edge/rpc",
		`WarnUnaryDuration, 300\*time.Millisecond`,
		"WarnUnaryDuration, 310*time.Millisecond", "310ms"},

	"tls-min-version": {"internal/edge/certs", `DefaultMinVersion = "TLS1.2"`,
		`DefaultMinVersion = "TLS1.3"`, "TLS1.3"},
	"self-signed-cert-validity": {"internal/edge/certs", `DefaultSelfSignedValidity = 365`,
		"DefaultSelfSignedValidity = 2 * 365", "2"},
	"cors":           {"internal/edge/httpd", `Any = "\*"`, `Any = "**"`, "**"},
	"host-whitelist": {"internal/edge/httpd", `Any = "\*"`, `Any = "**"`, "**"},

	"distributed-tracing-address": {"internal/tracing", `Address, "localhost:4317"`,
		`Address, "localhost:4318"`, "localhost:4318"},
	"distributed-tracing-service-name": {"internal/tracing", `ServiceName, "etcd"`,
		`ServiceName, "store"`, "store"},
}

// ofServer are the flags whose values the server and the program use themselves.
var ofServer = map[string]bool{"name": true, "data-dir": true, "wal-dir": true,
	"listen-peer-urls": true, "listen-client-urls": true,
	"initial-advertise-peer-urls": true, "advertise-client-urls": true, "initial-cluster": true,
	"initial-cluster-state": true,
	"initial-cluster-token": true, "max-catchup-bytes": true, "feature-gates": true,
	"metrics": true, "distributed-tracing-sampling-rate": true,
	"log-outputs": true, "log-level": true, "log-format": true, "log-rotation-config-json": true}

// TestDefaultsHaveOneHome changes every default where it is, and expects the new value in the
// effective configuration and in the help: no other default may hide it.
func TestDefaultsHaveOneHome(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]string{} // file: text
	for flag, h := range homes {
		files, err := filepath.Glob(filepath.Join(root, h.dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, ok := changed[file]
			if !ok {
				text = read(t, file)
			}
			if strings.Contains(text, h.changed) {
				found++ // by another flag
				continue
			}
			places := regexp.MustCompile(`\b`+h.expression).FindAllStringIndex(text, -1)
			if len(places) == 1 {
				changed[file] = text[:places[0][0]] + h.changed + text[places[0][1]:]
			}
			found += len(places)
		}
		if found != 1 {
			t.Errorf("--%s: %s has %q in %d places, want 1", flag, h.dir, h.expression, found)
		}
	}
	binary := build(t, root, changed)

	config := exec.Command(binary, "config", "-w", "json")
	// these override defaults
	config.Env = slices.DeleteFunc(config.Environ(),
		func(s string) bool { return strings.HasPrefix(s, "ETCD_") })
	out, err := config.Output()
	if err != nil {
		t.Fatal(err)
	}
	var settings []struct{ Flag, Value, NoEffect string }
	if err := json.Unmarshal(out, &settings); err != nil {
		t.Fatal(err)
	}
	help, err := exec.Command(binary, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		h, ok := homes[s.Flag]
		switch {
		case ok && s.Value != h.shown:
			t.Errorf("--%s is %s, not %s: the default in %s is not the only one", s.Flag, s.Value,
				h.shown, h.dir)
		case ok && !regexp.MustCompile(`(?m)^  --`+s.Flag+` .*\(default `+regexp.QuoteMeta(h.shown)+
			`\)`).Match(help):
			t.Errorf("the help does not show %s for --%s", h.shown, s.Flag)
		case !ok && !ofServer[s.Flag] && s.NoEffect == "" && s.Value != "" && s.Value != "false" &&
			s.Value != "true":
			t.Errorf("--%s has the default %s, and is not in this test", s.Flag, s.Value)
		}
	}
}

// build builds the server with the contents of some files changed.
func build(t *testing.T, root string, changed map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for file, text := range changed {
		to := filepath.Join(dir,
			strings.ReplaceAll(strings.TrimPrefix(file, root), string(filepath.Separator), "-"))
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		overlay.Replace[file] = to
	}
	b, err := json.Marshal(overlay)
	if err != nil {
		t.Fatal(err)
	}
	list, binary := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "vigil")
	if err := os.WriteFile(list, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-C", root, "-buildvcs=false", "-overlay", list,
		"-o", binary, "./cmd/vigil").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
