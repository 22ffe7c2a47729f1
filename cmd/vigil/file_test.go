package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "conf.yml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// find returns one line of the effective configuration.
func find(t *testing.T, o *options, flag string) setting {
	t.Helper()
	all := o.effective()
	i := slices.IndexFunc(all, func(s setting) bool { return s.Flag == flag })
	if i < 0 {
		t.Fatalf("no flag %s", flag)
	}
	return all[i]
}

// TestOrigins: the command line overrides the environment, the environment overrides the file, and
// each value has its origin.
func TestOrigins(t *testing.T) {
	path := writeConfig(t, `name: file
max-txn-ops: 1
max-request-bytes: 1000
heartbeat-interval: 50
`)
	o, err := parse([]string{"--config-file", path, "--name=flag", "--discovery-user", ""},
		[]string{"ETCD_NAME=environment", "ETCD_MAX_TXN_OPS=2", "ETCD_DISCOVERY_PASSWORD=secret",
			"ETCD_WAL_DIR="})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []setting{
		{"name", "flag", "flag", ""},
		{"max-txn-ops", "2", "environment ETCD_MAX_TXN_OPS", ""},
		{"max-request-bytes", "1000", "file " + path + ":3", ""},
		{"heartbeat-interval", "50", "file " + path + ":4", ""},
		{"election-timeout", "1000", "default", ""},
		{"data-dir", "flag.etcd", "default", ""},
		{"wal-dir", "flag.etcd/wal", "default", ""},
		{"initial-cluster", "flag=http://localhost:2380", "default", ""},
		{"discovery-password", masked, "environment ETCD_DISCOVERY_PASSWORD", ""},
		{"discovery-user", "", "flag", ""},
	} {
		if got := find(t, o, want.Flag); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
	// Neither variables of container images nor variables that etcd has removed are flags.
	o, err = parse([]string{"--snapshot=1", "-v"},
		[]string{"ETCD_VERSION=3.7.3", "ETCD_UNSUPPORTED_ARCH=x", "ETCD_VERIFY=all"})
	if err != nil || o.version ||
		!slices.Equal(o.unknownVars, []unknownVar{{name: "ETCD_VERSION"}}) ||
		len(o.goneFlags) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
	// The file may be named by the environment, too.
	o, err = parse(nil, []string{"ETCD_CONFIG_FILE=" + path})
	if err != nil || o.config.Name != "file" {
		t.Errorf("%v, %v", o.config.Name, err)
	}
}

// TestFile reads every form that etcd's file has.
func TestFile(t *testing.T) {
	o, err := parse([]string{"--config-file", writeConfig(t, `
# comment
name: 'a'
data-dir:
listen-client-urls: https://127.0.0.1:1, http://127.0.0.1:2
log-outputs: [stderr, vigil.log]
cipher-suites: [
  TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
]
enable-pprof: yes
strict-reconfig-check: false
watch-progress-notify-interval: 600000000000
warning-apply-duration: 250ms
auto-compaction-retention: "1"
feature-gates: InitialCorruptCheck=false
proxy: 'off'
discovery-fallback: 'proxy'
socket-options: {reuse-port: true}
client-transport-security:
  cert-file: /c
  key-file: /k
  client-cert-auth: true
  trusted-ca-file: /ca
  auto-tls: false
  allowed-hostname: [a.example, b.example]
peer-transport-security:
  cert-file: /pc
  key-file: /pk
  trusted-ca-file: /pca
  allowed-cn: [one, two]
  skip-client-san-verification: true
`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := o.config
	for what, ok := range map[string]bool{
		"null is no value": c.DataDir == "a.etcd",
		"URLs": slices.Equal(c.ListenClientURLs,
			[]string{"https://127.0.0.1:1", "http://127.0.0.1:2"}),
		"lists": slices.Equal(o.log.outputs, []string{"stderr", "vigil.log"}) &&
			len(c.CipherSuites) == 2,
		"booleans":          c.EnablePprof && c.LaxReconfig,
		"nanoseconds":       c.WatchProgressInterval == 10*time.Minute,
		"durations":         c.WarnApplyDuration == 250*time.Millisecond,
		"strings of digits": c.AutoCompactionRetention == "1",
		"feature gates":     c.NoInitialCorruptCheck && !c.NoCompactHashCheck,
		"groups":            c.SocketReusePort && !c.SocketReuseAddress,
		"client TLS": c.ClientTLS.CertFile == "/c" && c.ClientTLS.ClientCertAuth &&
			c.ClientTLS.TrustedCAFile == "/ca" && len(c.ClientTLS.AllowedHostname) == 2,
		"peer TLS": c.PeerTLS.CertFile == "/pc" && c.PeerTLS.SkipClientSAN &&
			slices.Equal(c.PeerTLS.AllowedCN, []string{"one", "two"}),
		"keys of old":        len(o.unusedKeys) == 2,
		"nothing but a null": readsEmpty(t),
	} {
		if !ok {
			t.Errorf("%s: %+v", what, c)
		}
	}
}

func readsEmpty(t *testing.T) bool {
	for _, text := range []string{"", "# nothing\n", "---\n", "null\n"} {
		if _, err := parse([]string{"--config-file=" + writeConfig(t, text)}, nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	return true
}

// TestFileMistakes: each mistake is reported with its line.
func TestFileMistakes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"name: a\nnmae: b\n", "conf.yml:2: there is no key nmae; did you mean name?"},
		{"name: a\nname: b\n", "conf.yml:2: name is set already in line 1"},
		{"client-transport-security:\n  cert: x\n", "conf.yml:2: there is no key cert"},
		{"client-transport-security: x\n",
			"conf.yml:1: client-transport-security: want keys and values"},
		{"client-transport-security:\n  cret-file: x\n",
			"conf.yml:2: there is no key cret-file; did you mean cert-file?"},
		{"client-transport-securty:\n  cert-file: x\n",
			"conf.yml:1: there is no key client-transport-securty; did you mean client-transport-security?"},
		{"version: true\n", "there is no key version"},
		{"config-file: x\n", "there is no key config-file"},
		{"discovery-config.client: {}\n", "there is no key discovery-config.client"},
		{"max-txn-ops: many\n", `conf.yml:1: max-txn-ops: "many": want a whole number`},
		{"enable-pprof: maybe\n", `conf.yml:1: enable-pprof: "maybe": want true or false`},
		{"name: {a: b}\n", "conf.yml:1: name: want a plain value"},
		{"log-outputs: [[a]]\n", "want a list of plain values"},
		{"- a\n- b\n", "conf.yml:1: want keys and values"},
		{"name: a\n---\nname: b\n", "conf.yml:2: a second document"},
		{"name: a\n---\n", "a second document"},
		{"listen-client-urls: http://127.0.0.1:99999\n", "port must be a number from 0 to 65535"},
		{"listen-peer-urls: http://127.0.0.1:x\n", "http://127.0.0.1:x"},
		{"advertise-client-urls: http://a:1?b=c\n", "must not have a query"},
		{"initial-advertise-peer-urls: http://a:1#b\n", "must not have a fragment"},
		{"initial-cluster: a=http://b:70000\n", "port must be a number from 0 to 65535"},
		{"advertise-client-urls: http://root:pw@a:1\n", "must not have a user"},
		{"name: [\n", "line 1"},
		{"\tname: a\n", "cannot start any token"},
	} {
		_, err := parse([]string{"--config-file=" + writeConfig(t, c.text)}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.Is(err, errUsage) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
	if _, err := parse([]string{"--config-file=/does/not/exist"}, nil); err == nil ||
		!strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := parse([]string{"--config-file=" +
		writeConfig(t, strings.Repeat("# long\n", maxConfigFile))}, nil); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("a large file: %v", err)
	}
}

// TestAllMistakesAtOnce: those of all sources, and of values that do not go together.
func TestAllMistakesAtOnce(t *testing.T) {
	path := writeConfig(t, "colour: red\n")
	_, err := parse([]string{"--config-file", path, "--max-txn-ops=x",
		"--listen-client-urls=ftp://a", "--tls-min-version=TLS1.1", "--cert-file=c",
		"--election-timeout=10", "--discovery-password=secret", "--bcrypt-cost=high",
		"--auto-compaction-retention=soon", "--speed=fast", "walk"},
		[]string{"ETCD_QUOTA_BACKEND_BYTES=lots"})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"colour", "--max-txn-ops", "ftp://a", "--tls-min-version",
		"--cert-file and --key-file", "--election-timeout",
		"--bcrypt-cost", "auto-compaction-retention", "--speed", "walk",
		"ETCD_QUOTA_BACKEND_BYTES"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "secret") || strings.Contains(oneLine(err), "\n") {
		t.Errorf("%v", err)
	}
}

func TestPrintEffective(t *testing.T) {
	format, rest, err := splitFormat([]string{"--name=a", "-w", "json", "--pre-vote"})
	if err != nil || format != "json" || !slices.Equal(rest, []string{"--name=a", "--pre-vote"}) {
		t.Fatalf("%q, %q, %v", format, rest, err)
	}
	for _, args := range [][]string{{"-w"}, {"-w=xml"}, {"--write-out", "xml"}} {
		if _, _, err := splitFormat(args); err == nil {
			t.Errorf("%q is fine", args)
		}
	}
	o, err := parse([]string{"--name=a", "--max-wals=9"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := o.printEffective(&b, "json"); err != nil {
		t.Fatal(err)
	}
	var list []setting
	if err := json.Unmarshal(b.Bytes(), &list); err != nil || len(list) < 100 {
		t.Errorf("%v, %d settings", err, len(list))
	}
	b.Reset()
	if err := o.printEffective(&b, "simple"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FLAG", "name ", " flag\n", "flag (no effect: "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not in\n%s", want, b.String())
		}
	}
}

// TestKeysOfGroups: each stands for a flag or another group.
func TestKeysOfGroups(t *testing.T) {
	names := map[string]bool{}
	newOptions().each(func(o *option) { names[o.name] = true })
	for group, keys := range groupKeys {
		for key, name := range keys {
			if !names[name] && groupKeys[name] == nil {
				t.Errorf("%s of %s is %s, which is nothing", key, group, name)
			}
		}
	}
}

func FuzzFile(f *testing.F) {
	f.Add([]byte("name: a\nclient-transport-security: {cert-file: b}\n"))
	f.Add([]byte("a: &x [*x]\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := parse([]string{"--config-file=" + path}, nil)
		if err != nil && !errors.Is(err, errUsage) {
			t.Fatal(err)
		}
		_ = fmt.Sprint(o.effective())
	})
}

// TestConfigYAML: vigil config -w yaml prints a configuration file with the same meaning.
func TestConfigYAML(t *testing.T) {
	o, err := parse([]string{"--name=a: b", "--max-txn-ops=7", "--pre-vote=false",
		"--discovery-endpoints=x:1", "--discovery-token=t", "--discovery-user=u:secret"},
		[]string{"ETCD_CORRUPT_CHECK_TIME=0"})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := o.printEffective(&text, "yaml"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"name: \"a: b\"  # flag\n", "max-txn-ops: 7  # flag\n",
		"corrupt-check-time: \"0s\"  # environment ETCD_CORRUPT_CHECK_TIME\n",
		"# discovery-user: \"(hidden)\"  # flag\n", "heartbeat-interval: 100\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, text.String())
		}
	}
	if strings.Contains(text.String(), "secret") {
		t.Error("a secret is printed")
	}
	path := filepath.Join(t.TempDir(), "c.yml")
	if err := os.WriteFile(path, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := parse([]string{"--config-file", path, "--discovery-user=u:secret"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	old, now := o.effective(), again.effective()
	for i := range old {
		if old[i].Flag != "config-file" && old[i].Value != now[i].Value {
			t.Errorf("%s is %q, not %q", old[i].Flag, now[i].Value, old[i].Value)
		}
	}
}
