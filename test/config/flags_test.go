package config

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// flagLine is a line of --help that begins a flag, of etcd or Vigil.
var flagLine = regexp.MustCompile(`(?m)^  --([a-z0-9-]+)(.*)$`)

// presets returns the flags in the --help of a program with their defaults.
func presets(t *testing.T, p proc.Program) map[string]string {
	t.Helper()
	out, err := exec.Command(proc.Path(t, p), "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, m := range flagLine.FindAllStringSubmatch(string(out), -1) {
		rest := strings.TrimSpace(m[2])
		if p == proc.Vigil {
			_, rest, _ = strings.Cut(rest, "(default ")
			rest = strings.TrimSuffix(rest, ")")
		}
		found[m[1]] = normal(strings.Trim(rest, "'"))
	}
	return found
}

// normal is one way to write a default.
func normal(s string) string {
	if d, err := time.ParseDuration(s); err == nil && s != "0" {
		return d.String()
	}
	if s == "false" {
		return ""
	}
	return s
}

// missing are in etcd's help and not in Vigil's.
var missing = map[string]string{
	"discovery":       "the help of etcd 3.7 has it, and etcd refuses it: it went with the v2 API",
	"discovery-proxy": "likewise",
}

// added are in Vigil's help and not in the flags of etcd's.
var added = map[string]string{
	"config-file":               "etcd has it too, and names it elsewhere in its help",
	"version":                   "likewise",
	"max-range-bytes-in-flight": "bounds the memory of large reads",
	"max-watchers-per-stream":   "bounds what a client may ask for",
	"max-catchup-bytes":         "bounds the raft log that is kept for members that lag",
	"scrub-bytes-per-second":    "reads stored data to find damage",
	"scrub-pause":               "likewise",
	"console":                   "etcd has no web interface",
	"archive":                   "etcd has no continuous archive",
	"archive-recipient":         "likewise",
	"archive-interval":          "likewise",
	"archive-max-lag-bytes":     "likewise",
	"archive-base-interval":     "likewise",
	"archive-base-bytes":        "likewise",
	"archive-full-interval":     "likewise",
	"archive-program":           "likewise",
}

// otherDefaults are the flags whose default is another than etcd's, or is written in another way.
var otherDefaults = map[string]string{
	"data-dir":                             "the same, written NAME.etcd",
	"wal-dir":                              "the same: a directory in --data-dir",
	"quota-backend-bytes":                  "the same: etcd's 0 is 2 GiB",
	"max-concurrent-streams":               "the same, written as a number",
	"enable-grpc-gateway":                  "the same, which etcd does not print",
	"feature-gates":                        "members are compared by default",
	"corrupt-check-time":                   "members are compared by default, without stopping them",
	"initial-cluster":                      "the same: this member",
	"advertise-client-urls":                "the listen URLs, which are the same by default; etcd wants them to be given if those are",
	"backend-batch-interval":               "changes nothing",
	"peer-client-cert-file":                "the same: that of the server",
	"peer-client-key-file":                 "the same",
	"compaction-sleep-interval":            "changes nothing",
	"downgrade-check-time":                 "the same, which etcd does not print",
	"snapshot-catchup-entries":             "the same, which etcd does not print",
	"bootstrap-defrag-threshold-megabytes": "the same, which etcd does not print",
}

// TestHelp compares the flags that --help of both programs has, and their defaults.
func TestHelp(t *testing.T) {
	etcd, vigil := presets(t, proc.Etcd), presets(t, proc.Vigil)
	if len(etcd) < 100 {
		t.Fatalf("only %d flags in etcd's help", len(etcd))
	}
	for name, theirs := range etcd {
		ours, ok := vigil[name]
		switch {
		case !ok && missing[name] == "":
			t.Errorf("--%s is missing", name)
		case ok && ours != theirs && otherDefaults[name] == "":
			t.Errorf("--%s is %q by default, and %q with etcd", name, ours, theirs)
		case ok && ours == theirs && otherDefaults[name] != "":
			t.Errorf("the default of --%s is no exception: %s", name, otherDefaults[name])
		}
	}
	for name := range vigil {
		if _, ok := etcd[name]; !ok && added[name] == "" {
			t.Errorf("--%s is not in etcd", name)
		}
	}
	for name := range missing {
		res := proc.Run(t, patience,
			proc.Spec{Name: proc.Path(t, proc.Etcd),
				Args: []string{"--" + name + "=x", "--version"}})
		if res.Code == 0 {
			t.Errorf("etcd takes --%s", name)
		}
	}
}

const patience = time.Minute

// unset are the flags that cannot be given together with all others.
var unset = map[string]string{
	"version":             "prints and exits",
	"discovery-token":     "finds the members, whom --initial-cluster names",
	"discovery-endpoints": "likewise",
	"discovery-srv":       "likewise",
	"discovery-srv-name":  "likewise",
	"memory-mlock":        "needs a right that not every machine gives",

	"peer-cert-allowed-hostname": "excludes --peer-cert-allowed-cn",
}

// TestEveryFlag runs a member with every flag there is: first by the command line, then by the
// environment, then by a file.
func TestEveryFlag(t *testing.T) {
	ca := pki.New(t)
	ca.Issue("server", nil)
	ca.Write("empty.yml", nil)
	ca.Revoke("crl.der")
	cert, key, authority := ca.File("server.pem"), ca.File("server-key.pem"),
		ca.File("authority.pem")
	client, peer, web, metrics := proc.FreePort(t), proc.FreePort(t), proc.FreePort(t),
		proc.FreePort(t)
	at := func(scheme string,
		port int) string {
		return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port)
	}
	dir := proc.Dir(t)
	values := map[string]string{
		"config-file": ca.File("empty.yml"), "name": "m1", "data-dir": filepath.Join(dir, "data"),
		"wal-dir":          filepath.Join(dir, "wal"),
		"listen-peer-urls": at("https", peer), "initial-advertise-peer-urls": at("https", peer),
		"initial-cluster":    "m1=" + at("https", peer),
		"listen-client-urls": at("https", client), "advertise-client-urls": at("https", client),
		"listen-client-http-urls": at("https", web),
		"listen-metrics-urls":     at("https", metrics),
		"cert-file":               cert, "key-file": key, "client-cert-auth": "true",
		"client-cert-file": cert, "client-key-file": key, "trusted-ca-file": authority,
		"client-crl-file": ca.File("crl.der"), "client-cert-allowed-hostname": "127.0.0.1",
		"auto-tls":       "true",
		"peer-cert-file": cert, "peer-key-file": key, "peer-client-cert-auth": "true",
		"peer-client-cert-file": cert, "peer-client-key-file": key,
		"peer-trusted-ca-file": authority, "peer-crl-file": ca.File("crl.der"),
		"peer-cert-allowed-cn": "server",
		"peer-auto-tls":        "true", "cipher-suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
		"tls-max-version":   "TLS1.3",
		"socket-reuse-port": "true", "socket-reuse-address": "true",
		"discovery-insecure-skip-tls-verify": "true",
		"discovery-cert":                     cert, "discovery-key": key,
		"discovery-cacert": authority,
		"discovery-user":   "user", "discovery-password": "password",
		"peer-skip-client-san-verification": "true", "enable-pprof": "true",
		"log-outputs": "stderr," + filepath.Join(dir, "log"), "enable-log-rotation": "true",
		"enable-distributed-tracing": "true", "distributed-tracing-address": "127.0.0.1:1",
		"distributed-tracing-instance-id": "id",
		"unsafe-no-fsync":                 "true", "metrics": "extensive",
		"archive":           "file://" + filepath.Join(dir, "archive"),
		"archive-recipient": "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p",
	}
	var args, env, yaml []string
	for name, preset := range presets(t, proc.Vigil) {
		value, given := values[name]
		if unset[name] != "" || name == "force-new-cluster" {
			continue
		}
		if !given {
			value = preset
			if value == "" {
				t.Errorf("--%s has no value here", name)
			}
		}
		args = append(args, "--"+name+"="+value)
		env = append(env, "ETCD_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+value)
		if name != "config-file" {
			yaml = append(yaml, fmt.Sprintf("%s: %q", name, value))
		}
	}
	slices.Sort(yaml)
	ca.Write("all.yml", []byte(strings.Join(yaml, "\n")))
	run := func(how string, c proc.Spec) {
		t.Helper()
		res := proc.Run(t, patience,
			proc.Spec{Name: proc.Path(t, proc.Vigil),
				Args: append([]string{"config"}, c.Args...), Env: c.Env})
		if res.Code != 0 {
			t.Fatalf("by %s: exit %d: %s", how, res.Code, res.Stderr)
		}
		defaults := 0
		for line := range strings.Lines(res.Stdout) {
			if strings.HasSuffix(line, " default\n") {
				defaults++
				name, _, _ := strings.Cut(line, " ")
				// means nothing in a file, with etcd too
				old := how == "file" && name == "discovery-fallback"
				if unset[name] == "" && name != "force-new-cluster" &&
					name != "config-file" && !old {
					t.Errorf("by %s: --%s did not arrive", how, name)
				}
			}
		}
	}
	run("flags", proc.Spec{Args: args})
	run("environment", proc.Spec{Env: env})
	run("file", proc.Spec{Args: []string{"--config-file=" + ca.File("all.yml")}})

	s := proc.Start(t, proc.Config{Program: proc.Vigil, DataDir: values["data-dir"],
		ClientPort: client, PeerPort: peer, Args: args})
	s.Stop()
	// The flag that needs data.
	s.SetArgs(append(args, "--force-new-cluster")...)
	s.Restart()
	if strings.Contains(s.Log().String(), `"level":"error"`) {
		t.Errorf("errors in the log:\n%s", s.Log().Tail(50))
	}
}

// TestConfigCommand prints what holds, and changes nothing.
func TestConfigCommand(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	vigil := proc.Path(t, proc.Vigil)
	res := proc.Run(t, patience,
		proc.Spec{Name: vigil, Args: []string{"config", "--data-dir", dir, "-w", "json"},
			Env: []string{"ETCD_NAME=n", "ETCD_NOTHING=1"}})
	for _, want := range []string{`"flag": "data-dir"`, `"value": "` + dir + `"`,
		`"origin": "environment ETCD_NAME"`} {
		if res.Code != 0 || !strings.Contains(res.Stdout, want) {
			t.Errorf("exit %d, no %s in\n%s%s", res.Code, want, res.Stdout, res.Stderr)
		}
	}
	// A value steers no terminal, and makes no line of its own.
	res = proc.Run(t, patience,
		proc.Spec{Name: vigil, Args: []string{"config"},
			Env: []string{"ETCD_INITIAL_CLUSTER_TOKEN=a\x1b[31m\nname  b\t\u202ec"}})
	if want := `a\x1b[31m\nname  b\t\u202ec`; res.Code != 0 || !strings.Contains(res.Stdout, want) {
		t.Errorf("exit %d, no %s in\n%q", res.Code, want, res.Stdout)
	}
	res = proc.Run(t, patience,
		proc.Spec{Name: vigil, Args: []string{"config", "--heartbeat-interval=x", "--nonsense"}})
	if res.Code != 2 || strings.Count(res.Stderr, "\n") != 1 ||
		!strings.Contains(res.Stderr, "heartbeat-interval") ||
		!strings.Contains(res.Stderr, "nonsense") {
		t.Errorf("exit %d: %s", res.Code, res.Stderr)
	}
	if found, _ := filepath.Glob(dir + "*"); len(found) > 0 {
		t.Errorf("it wrote %q", found)
	}
}

// TestNotes: the log has the flags without an effect, the configuration at debug level only, and no
// secret.
func TestNotes(t *testing.T) {
	args := []string{"--max-wals=9", "--feature-gates=PriorityRequest=true",
		"--discovery-password=swordfish"}
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, Args: args,
		Env: []string{"ETCD_NOTHING=1"}})
	log := s.Log().String()
	for line := range strings.Lines(log) {
		if len(line) > 1000 || strings.Contains(line, "effective configuration") {
			t.Errorf("a wall of a line: %s", line)
		}
	}
	s.Stop()
	s.SetArgs(append(args, "--log-level=debug")...)
	s.Restart()
	log = s.Log().String()
	for _, want := range []string{`"level":"debug"`, `"msg":"effective configuration"`,
		`"flag":"max-wals"`, `"feature-gate":"PriorityRequest"`, `"variable":"ETCD_NOTHING"`,
		"serving client traffic"} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in\n%s", want, log)
		}
	}
	if strings.Contains(log, "swordfish") {
		t.Error("a password is in the log")
	}
}

// TestSecondMember: a second member without flags reports that its port is in use.
func TestSecondMember(t *testing.T) {
	first := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	dir := filepath.Join(t.TempDir(), "data")
	res := proc.Run(t, patience,
		proc.Spec{Name: proc.Path(t, proc.Vigil), Args: []string{"--data-dir=" + dir,
			"--listen-client-urls=http://127.0.0.1:0",
			"--listen-peer-urls=http://" + first.PeerAddr()}})
	if res.Code != 1 || !strings.Contains(res.Stderr,
		first.PeerAddr()+": the address is in use by another program") {
		t.Errorf("exit %d: %s", res.Code, res.Stderr)
	}
	if found, _ := filepath.Glob(dir + "*"); len(found) > 0 {
		t.Errorf("it wrote %q", found)
	}
}
