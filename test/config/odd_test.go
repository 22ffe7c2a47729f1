package config

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
)

// oddValues are the values that each kind of flag is tried with: limits, signs, other notations,
// spaces, letter case.
var oddValues = map[string][]string{
	"bool":     {"true", "TRUE", "t", "1", "yes", "on", "", " true", "2"},
	"duration": {"0", "0s", "-1s", "10ms", "1h", "5", "1.5s", "1d", "", " 1s"},
	"number": {"0", "1", "-1", "010", "0x10", "1_000", "1.5", "1e3", "", " 5", "4294967296",
		"9223372036854775808", "18446744073709551616"},
	"text": {"", "x", " x ", "a,b", "\xff", "é"},
	"urls": {"", ",", "http://127.0.0.1:{spare}", "http://127.0.0.1:{spare},",
		" http://127.0.0.1:{spare}", "http://127.0.0.1:{spare}/", "HTTP://127.0.0.1:{spare}",
		"127.0.0.1:{spare}", "http://127.0.0.1", "http://localhost:{spare}",
		"http://[::1]:{spare}"},
}

// kinds has the kind of each flag that both programs have. A flag that is in none of the lists is
// in ownValues.
var kinds = map[string]string{
	"snapshot-count": "number", "snapshot-catchup-entries": "number",
	"heartbeat-interval": "number", "election-timeout": "number",
	"initial-election-tick-advance": "bool",
	"max-snapshots":                 "number", "max-wals": "number",
	"quota-backend-bytes":    "number",
	"backend-batch-interval": "duration", "backend-batch-limit": "number",
	"max-txn-ops": "number", "max-request-bytes": "number", "max-concurrent-streams": "number",
	"grpc-keepalive-min-time": "duration", "grpc-keepalive-interval": "duration",
	"grpc-keepalive-timeout": "duration", "socket-reuse-port": "bool",
	"socket-reuse-address": "bool", "enable-grpc-gateway": "bool", "raft-read-timeout": "duration",
	"raft-write-timeout": "duration", "strict-reconfig-check": "bool", "pre-vote": "bool",
	"auto-compaction-retention": "duration",
	"client-cert-auth":          "bool", "auto-tls": "bool", "peer-client-cert-auth": "bool",
	"peer-auto-tls": "bool", "peer-skip-client-san-verification": "bool",
	"self-signed-cert-validity": "number",
	"bcrypt-cost":               "number", "auth-token-ttl": "number", "enable-pprof": "bool",
	"enable-log-rotation": "bool", "warning-unary-request-duration": "duration",
	"enable-distributed-tracing": "bool", "distributed-tracing-sampling-rate": "number",
	"corrupt-check-time": "duration", "compact-hash-check-time": "duration",
	"compaction-batch-limit": "number", "compaction-sleep-interval": "duration",
	"watch-progress-notify-interval": "duration", "warning-apply-duration": "duration",
	"bootstrap-defrag-threshold-megabytes": "number", "max-learners": "number",
	"downgrade-check-time": "duration", "force-new-cluster": "bool", "unsafe-no-fsync": "bool",
	"discovery-dial-timeout": "duration", "discovery-request-timeout": "duration",
	"discovery-keepalive-time": "duration", "discovery-keepalive-timeout": "duration",
	"discovery-insecure-transport": "bool", "discovery-insecure-skip-tls-verify": "bool",
	"listen-client-http-urls": "urls", "listen-metrics-urls": "urls",
	"advertise-client-urls": "urls",
	"initial-cluster-token": "text", "cors": "text", "host-whitelist": "text",
	"client-cert-allowed-hostname": "text", "peer-cert-allowed-hostname": "text",
	"peer-cert-allowed-cn":        "text",
	"distributed-tracing-address": "text", "distributed-tracing-service-name": "text",
	"distributed-tracing-instance-id": "text", "backend-bbolt-freelist-type": "text",
	"discovery-srv-name": "text", "cipher-suites": "text",
}

// ownValues are tried for flags whose values are of no such kind.
var ownValues = map[string][]string{
	"name": {"", " ", " m1", "m1 ", "m 1", "m1,m2", "m=1", "é", "\xff"},
	"initial-cluster": {"{self},", ",{self}", "{self},,", " {self}", "{self} ",
		"m1= {peerurl}", "m1={peerurl}/", "M1={peerurl}", "m1 ={peerurl}", "{self},{self}",
		"{self},m2={peerurl}", "{self},m1=http://127.0.0.1:{spare}", ""},
	"initial-cluster-state": {"new", "NEW", "existing", "", " new"},
	"initial-advertise-peer-urls": {"{peerurl}", "{peerurl}/", " {peerurl}", "{peerurl},", "",
		"{peerurl},{peerurl}"},
	"listen-peer-urls": {"{peerurl}/", " {peerurl}", "{peerurl},"},
	"listen-client-urls": {"{clienturl}/", " {clienturl}", "{clienturl},",
		"127.0.0.1:{spare}"},
	"log-level": {"debug", "INFO", "Warn", "warning", "error", "ERROR", "dpanic",
		"panic", "fatal", "", "trace", " info"},
	"log-format": {"json", "console", "JSON", "", "text"},
	"log-outputs": {"default", "stderr", "stdout", "", "default,stderr",
		"stderr,stderr", "{dir}/log", "/dev/null", "systemd/journal"},
	"log-rotation-config-json": {"", "{}", "null", `{"maxsize": 0}`, `{"maxsize": "1"}`,
		`{"other": 1}`},
	"logger":               {"zap", "", "ZAP", "capnslog"},
	"metrics":              {"basic", "extensive", "all", "", "BASIC"},
	"auth-token":           {"simple", "", "jwt", "SIMPLE", "simple,x=y", " simple", "none"},
	"auto-compaction-mode": {"periodic", "revision", "", "PERIODIC", "off"},
	"tls-min-version":      {"", "TLS1.0", "TLS1.2", "TLS1.3", "tls1.2", "1.2"},
	"tls-max-version":      {"", "TLS1.1", "TLS1.2", "TLS1.3", "1.3"},
	"v2-deprecation": {"", "not-yet", "write-only",
		"write-only-drop-data", "gone", "x"},
	"feature-gates": {"", "AllAlpha=true", "CompactHashCheck=false",
		"CompactHashCheck", "Nope=true", "CompactHashCheck=maybe", "CompactHashCheck=true,",
		" CompactHashCheck=true"},
	"data-dir":              {"{dir}/a/b/c", "{dir}/file/x", "/proc/nothing"},
	"wal-dir":               {"", "{dir}/w/x", "{dir}/file/x"},
	"discovery-fallback":    {"exit", "proxy", ""},
	"discovery-endpoints":   {"", "127.0.0.1:1"},
	"discovery-token":       {"", "t"},
	"discovery-srv":         {""},
	"discovery-user":        {"u", "u:p", ":"},
	"discovery-password":    {"p"},
	"memory-mlock":          {"false"},
	"cert-file":             {"", "{dir}/none"},
	"key-file":              {"", "{dir}/none"},
	"trusted-ca-file":       {"", "{dir}/none", "{dir}/file"},
	"client-crl-file":       {"", "{dir}/none"},
	"peer-crl-file":         {"", "{dir}/none"},
	"client-cert-file":      {"", "{dir}/none"},
	"client-key-file":       {"", "{dir}/none"},
	"peer-cert-file":        {"", "{dir}/none"},
	"peer-key-file":         {"", "{dir}/none"},
	"peer-client-cert-file": {"", "{dir}/none"},
	"peer-client-key-file":  {"", "{dir}/none"},
	"peer-trusted-ca-file":  {"", "{dir}/none", "{dir}/file"},
	"discovery-cert":        {"", "{dir}/none"},
	"discovery-key":         {"", "{dir}/none"},
	"discovery-cacert":      {"", "{dir}/none"},
}

// files are whole configuration files, besides the members' addresses and directories.
var files = map[string]string{
	"anchor in place": "name: &n m1\ninitial-cluster-token: *n\n",
	"merge key":       "<<: {log-level: debug}\n",
	"anchored group":  "client-transport-security: &t {auto-tls: false}\npeer-transport-security: *t\n",
	"case of keys":    "Log-Level: debug\n",
	"case of all":     "LOG-LEVEL: debug\n",
	"underscores":     "log_level: debug\n",
	"camel":           "logLevel: debug\n",
	"a key twice":     "log-level: debug\nlog-level: info\n",
	"null":            "log-level: null\n",
	"tilde":           "log-level: ~\n",
	"number as text":  "snapshot-count: \"100\"\n",
	"text as number":  "name: m1\ninitial-cluster-token: 5\n",
	"bool as text":    "pre-vote: \"true\"\n",
	"yes":             "pre-vote: yes\n",
	"duration":        "watch-progress-notify-interval: 10m\n",
	"nanoseconds":     "watch-progress-notify-interval: 600000000000\n",
	"list":            "cors: [a, b]\n",
	"list of outputs": "log-outputs: [stderr]\n",
	"text of outputs": "log-outputs: stderr\n",
	"unknown":         "no-such-key: 1\n",
	"empty group":     "client-transport-security:\n",
	"group as text":   "client-transport-security: x\n",
	"two documents":   "log-level: debug\n---\nlog-level: info\n",
	"tab":             "log-level:\tdebug\n",
	"BOM":             "\ufefflog-level: debug\n",
	"CRLF":            "log-level: debug\r\npre-vote: true\r\n",
	"float":           "snapshot-count: 100.0\n",
	"exponent":        "snapshot-count: 1e3\n",
	"octal":           "snapshot-count: 0100\n",
}

// differentOutcomes are the values with which one program starts and the other does not, on
// purpose, and why. A key is a case, or a flag for all its values.
var differentOutcomes = map[string]string{
	"advertise-client-urls": commas, "listen-client-http-urls": commas,
	"listen-metrics-urls": commas, "listen-peer-urls": commas, "listen-client-urls": commas,
	"initial-advertise-peer-urls":     commas,
	`initial-cluster=" {self}"`:       "spaces after a comma are no part of a name",
	`initial-cluster="m1 ={peerurl}"`: "likewise",
	`initial-cluster=""`:              "the default is this member, under the name that it has",

	`auth-token-ttl="4294967296"`: tooLarge, `auth-token-ttl="9223372036854775808"`: tooLarge,
	`max-request-bytes="4294967296"`: tooLarge, `max-txn-ops="4294967296"`: tooLarge,
	`max-txn-ops="9223372036854775808"`:               tooLarge,
	`bcrypt-cost="9223372036854775808"`:               tooLarge,
	`self-signed-cert-validity="0"`:                   "not a number of years",
	`self-signed-cert-validity="1_000"`:               tooLarge,
	`self-signed-cert-validity="4294967296"`:          tooLarge,
	`self-signed-cert-validity="9223372036854775808"`: tooLarge,
	`max-request-bytes="0"`:                           "etcd waits for ever for its own first request",
	`max-request-bytes="010"`:                         "the first request of a member is not limited",
	`max-request-bytes="0x10"`:                        "likewise",
	`max-request-bytes="1"`:                           "likewise",
	`max-request-bytes="9223372036854775808"`:         tooLarge,

	"cert-file": unread, "key-file": unread, "trusted-ca-file": unread, "client-crl-file": unread,
	"peer-crl-file": unread, "peer-client-cert-file": unread,
	"peer-client-key-file": unread, "peer-trusted-ca-file": unread, "discovery-cert": unread,
	"discovery-key": unread, "discovery-cacert": unread,
	"client-cert-allowed-hostname": open, "peer-cert-allowed-hostname": open,
	"peer-cert-allowed-cn": open,

	"cors":                         "an origin that no browser sends matches nothing",
	`cipher-suites=""`:             "empty is the default",
	`discovery-endpoints=""`:       "likewise",
	`log-outputs="default,stderr"`: "several outputs are no mistake",
	"file: a key twice":            "one of the two values would be ignored",
	"file: two documents":          "the second would be ignored",
	"file: unknown":                "a misspelt key would be ignored",
	"file: underscores":            "likewise", "file: camel": "likewise",
	"file: bool as text": "the text is clear", "file: duration": "likewise",
	"file: list": "likewise", "file: number as text": "likewise",
	"file: text as number": "likewise", "file: text of outputs": "likewise",
}

const (
	commas   = "a comma at the end of a list means nothing"
	tooLarge = "Vigil could not keep to it"
	unread   = "a file that is named must be readable, whether it is used yet or not: a connection would not be protected as intended"
	open     = "it has no effect without the authority that makes clients show a certificate: everybody would be let in"
)

// An odd is a command line, or a file, that both programs are started with.
type odd struct {
	name string
	flag string
	args []string
	file string
}

// TestOddValues starts both programs with odd values of every flag by the command line and by the
// environment, and with odd files: what a stock etcd starts with, Vigil starts with, and what it
// refuses, Vigil refuses, except for what is listed with the reason.
func TestOddValues(t *testing.T) {
	shared := presets(t, proc.Etcd)
	vigil := presets(t, proc.Vigil)
	for name := range shared {
		if _, ok := vigil[name]; !ok {
			delete(shared, name)
		}
	}
	var odds []odd
	for _, name := range slices.Sorted(maps.Keys(shared)) {
		values := ownValues[name]
		if kind := kinds[name]; kind != "" {
			values = append(slices.Clone(values), oddValues[kind]...)
		}
		if len(values) == 0 {
			t.Errorf("--%s is tried with nothing: give it a kind or values", name)
		}
		for _, v := range values {
			odds = append(odds, odd{name: fmt.Sprintf("%s=%q", name, v), flag: name,
				args: []string{"--" + name + "=" + v}})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		odds = append(odds, odd{name: "file: " + name, file: files[name]})
	}
	for i, o := range odds {
		if testing.Short() && i%16 != 0 {
			continue
		}
		t.Run(strings.ReplaceAll(o.name, "/", "|"), func(t *testing.T) {
			t.Parallel()
			etcd, theirs := outcome(t, proc.Etcd, o)
			ours, said := outcome(t, proc.Vigil, o)
			_, listed := differentOutcomes[o.name]
			_, flag := differentOutcomes[o.flag]
			switch {
			case etcd == ours && listed:
				t.Errorf("%s: both %s; the exception is not needed", o.name, etcd)
			case etcd != ours && !listed && !flag:
				t.Errorf("%s: etcd %s, Vigil %s\netcd: %s\nVigil: %s", o.name, etcd,
					ours, theirs, said)
			}
		})
	}
}

// outcome starts a program and returns whether it serves or exits, and the end of its log.
func outcome(t *testing.T, p proc.Program, o odd) (outcome, log string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("not a certificate\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	c := proc.Config{Program: p, DataDir: filepath.Join(dir, "data"), ClientPort: proc.FreePort(t),
		PeerPort: proc.FreePort(t)}
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", c.PeerPort)
	fill := strings.NewReplacer("{dir}", dir, "{self}", "m1="+peerURL, "{peerurl}", peerURL,
		"{clienturl}", fmt.Sprintf("http://127.0.0.1:%d", c.ClientPort), "{spare}",
		fmt.Sprint(proc.FreePort(t)))
	var args []string
	for _, a := range c.CommandLine() {
		// The flag that is tried is given once.
		if o.flag == "" || !strings.HasPrefix(a, "--"+o.flag+"=") {
			args = append(args, a)
		}
	}
	if o.flag == "heartbeat-interval" {
		args = append(args, "--election-timeout=6000")
	} else if o.flag != "election-timeout" {
		args = append(args, "--heartbeat-interval=20", "--election-timeout=200")
	}
	for _, a := range o.args {
		args = append(args, fill.Replace(a))
	}
	if o.file != "" {
		text, mark := strings.TrimPrefix(o.file, "\ufeff"), strings.HasPrefix(o.file, "\ufeff")
		for _, a := range args {
			k, v, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
			if !strings.Contains("\n"+text, "\n"+k+":") {
				text = fmt.Sprintf("%s: %s\n", k, v) + text
			}
		}
		if mark {
			text = "\ufeff" + text
		}
		path := filepath.Join(dir, "config.yml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		args = []string{"--config-file=" + path}
	}
	process, err := proc.Launch(append([]string{proc.Path(t, p)}, args...), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer process.Kill()
	client := http.Client{Timeout: time.Second}
	url := fmt.Sprintf("http://127.0.0.1:%d/health?serializable=true", c.ClientPort)
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
		select {
		case <-process.Exited():
			return "exits", process.Log().Tail(2)
		case <-process.Log().Wait("ready to serve client requests"):
			return "serves", process.Log().Tail(2)
		case <-time.After(50 * time.Millisecond):
		}
		// Some levels of the log leave the line out.
		if r, err := client.Get(url); err == nil {
			r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return "serves", process.Log().Tail(2)
			}
		}
	}
	return "waits", process.Log().Tail(2)
}
