package alerts

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
)

// patience is how long a test waits for a condition: never the time of something that is measured.
const patience = 2 * time.Minute

// build returns the executable of the server.
func build(t *testing.T) string {
	t.Helper()
	if given := os.Getenv("VIGIL_BINARY"); given != "" {
		// so that go test knows that the result depends on it
		if _, err := os.Stat(given); err != nil {
			t.Fatal(err)
		}
		return given
	}
	name := filepath.Join(t.TempDir(), "vigil")
	c := exec.Command("go", "build", "-o", name, "./cmd/vigil")
	c.Dir = "../.."
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return name
}

// process is a member. It listens on sockets in a directory, so that it needs no free port.
type process struct {
	t         testing.TB
	name, dir string
	command   *exec.Cmd
	log       *os.File
	client    http.Client
}

// socketDir returns a directory with a short path: the path of a socket has 107 bytes at most.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "va")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startMember starts a member of a cluster. It is killed at the end of the test.
func startMember(t testing.TB, program, dir, name string, args ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, dir: dir}
	p.client = http.Client{Timeout: patience,
		Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", p.socket("metrics"))
			}}}
	p.command = exec.Command(program,
		append([]string{"--name=" + name, "--data-dir=" + filepath.Join(dir, name+".data"),
			"--listen-peer-urls=unix://" + p.socket("peer"),
			"--initial-advertise-peer-urls=unix://" +
				p.socket("peer"),
			"--listen-metrics-urls=unix://" + p.socket("metrics"),
			"--unsafe-no-fsync"}, args...)...)
	var err error
	if p.log, err = os.Create(filepath.Join(dir, name+".log")); err != nil {
		t.Fatal(err)
	}
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			text, _ := os.ReadFile(p.log.Name())
			t.Logf("the log of %s ends:\n%s", name, text[max(0, len(text)-3000):])
		}
		p.log.Close()
	})
	return p
}

func (p *process) socket(kind string) string { return filepath.Join(p.dir, p.name+"."+kind) }

func (p *process) kill() {
	if p.command.ProcessState == nil {
		_ = p.command.Process.Kill()
		_ = p.command.Wait()
	}
}

// call makes a call of the JSON gateway.
func (p *process) call(path, body string) {
	p.t.Helper()
	c := http.Client{Timeout: patience,
		Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", p.socket("client"))
			}}}
	res, err := c.Post("http://localhost"+path, "application/json", strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	if text, err := io.ReadAll(res.Body); err != nil || res.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s %v: %s", path, res.Status, err, text)
	}
}

// scrape reads the metrics of members like Prometheus: a member that cannot be read has up 0, and
// series that are missing end.
func (p *prometheus) scrape(members ...*process) time.Time {
	p.t.Helper()
	time.Sleep(2 * time.Millisecond) // samples of one series have different times,
	// in their order even if the clock of the machine is set back
	at := p.began.Add(time.Since(p.began))
	for _, m := range members {
		text, err := m.metrics()
		up := 1.0
		if err != nil {
			text, up = nil, 0
		}
		p.memory.add(labels.FromStrings(model.MetricNameLabel, "up", "job", "vigil", "instance",
			m.name), at, up)
		parser, err := textparse.New(text, "text/plain", nil,
			textparse.ParserOptions{FallbackContentType: "text/plain"})
		if err != nil {
			p.t.Fatal(err)
		}
		for {
			entry, err := parser.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				p.t.Fatal(err)
			}
			if entry != textparse.EntrySeries {
				continue
			}
			var l labels.Labels
			parser.Labels(&l)
			_, _, v := parser.Series()
			p.memory.add(labels.NewBuilder(l).Set("job", "vigil").Set("instance",
				m.name).Labels(), at, v)
		}
		p.end(m, at)
	}
	return at
}

// end ends the series of a member that have no sample of this time.
func (p *prometheus) end(m *process, at time.Time) {
	for _, s := range p.memory.all() {
		last := s.Floats[len(s.Floats)-1]
		if s.Metric.Get("instance") == m.name &&
			!strings.Contains(s.Metric.Get(model.MetricNameLabel), ":") &&
			last.T < at.UnixMilli() && !value.IsStaleNaN(last.F) {
			p.memory.add(s.Metric, at, stale)
		}
	}
}

func (p *process) metrics() ([]byte, error) {
	res, err := p.client.Get("http://localhost/metrics")
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, b) // as for Prometheus
	}
	return b, err
}

// await scrapes members until the alerts, pending ones included, are as a test wants them.
func (p *prometheus) await(what string, members []*process, ok func(names []string) bool) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(200 * time.Millisecond) {
		at := p.scrape(members...)
		p.evaluate(at, at)
		if ok(p.names(true)) {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%s: the alerts are %q", what, p.names(true))
		}
	}
}

// of returns the alerts that do not depend on the speed of the machine.
func of(names []string) (out []string) {
	for _, n := range names {
		switch n {
		case "VigilAbsent", "VigilAllDown", "VigilNoQuorum", "VigilQuorumAtRisk", "VigilMemberDown",
			"VigilMemberNotScraped", "VigilNoLeader", "VigilAlarm",
			"VigilQuotaNear", "VigilQuotaAlmostUsed", "VigilDamage", "VigilMembersDiffer",
			"VigilNoCompaction", "VigilCertificateExpires",
			"VigilCertificateExpiresSoon", "VigilCertificateExpired", "VigilVersionsDiffer",
			"VigilWatchersCompacted":
			out = append(out, n)
		}
	}
	return out
}

func are(want ...string) func([]string) bool {
	return func(names []string) bool { return slices.Equal(of(names), want) }
}

// TestMembers: three real members have every series that the rules and the dashboard read, and
// raise the alerts of what happens to them.
func TestMembers(t *testing.T) {
	program := build(t)
	t.Run("cluster", func(t *testing.T) { testCluster(t, program) })
	t.Run("certificates", func(t *testing.T) { testCertificates(t, program) })
}

func testCluster(t *testing.T, program string) {
	dir := socketDir(t)
	names := []string{"a", "b", "c"}
	var cluster []string
	for _, n := range names {
		cluster = append(cluster, n+"=unix://"+filepath.Join(dir, n+".peer"))
	}
	issue(t, dir, "server", 100*24*time.Hour)
	bucket := filepath.Join(dir, "archive")
	if err := os.Mkdir(bucket, 0o700); err != nil {
		t.Fatal(err)
	}
	var members []*process
	for _, n := range names {
		m := startMember(t, program, dir, n, "--initial-cluster="+strings.Join(cluster, ","),
			"--listen-client-urls=unix://"+filepath.Join(dir, n+".client"),
			"--advertise-client-urls=unix://"+filepath.Join(dir, n+".client"),
			"--election-timeout=5000", "--heartbeat-interval=500", "--archive=file://"+bucket,
			"--peer-cert-file="+filepath.Join(dir, "server.pem"),
			"--peer-key-file="+filepath.Join(dir, "server-key.pem"))
		members = append(members, m)
	}
	p := newPrometheus(t)
	p.await("healthy members", members, func(names []string) bool {
		return len(of(names)) == 0 &&
			len(p.memory["etcd_network_peer_round_trip_time_seconds_bucket"]) > 0
	})
	members[0].call("/v3/kv/put", `{"key": "a2V5", "value": "dmFsdWU="}`)
	members[0].call("/v3/kv/range", `{"key": "a2V5"}`)
	members[0].call("/v3/maintenance/alarm",
		`{"action": "ACTIVATE", "memberID": "1", "alarm": "CORRUPT"}`)
	p.await("an alarm", members, are("VigilAlarm"))
	p.checkNames()
	members[0].call("/v3/maintenance/alarm",
		`{"action": "DEACTIVATE", "memberID": "1", "alarm": "CORRUPT"}`)
	p.await("the end of the alarm", members, are())

	members[2].kill()
	p.await("one of three members is dead", members, are("VigilMemberDown", "VigilQuorumAtRisk"))
	members[1].kill()
	p.await("two of three members are dead", members,
		are("VigilMemberDown", "VigilNoLeader", "VigilNoQuorum"))
	members[0].kill()
	p.await("all members are dead", members, are("VigilAllDown", "VigilMemberDown"))
	at := p.scrape()
	for _, m := range members {
		p.end(m, at)
	}
	p.await("all targets have vanished", nil, are("VigilAbsent", "VigilNoQuorum"))
}

// checkNames looks for a series of each name that a rule or a panel reads.
func (p *prometheus) checkNames() {
	p.t.Helper()
	expressions := map[string]string{}
	for _, r := range p.rules {
		expressions["rule "+r.Record+r.Alert] = r.Expr
	}
	panels, more := dashboard(p.t)
	for _, x := range panels {
		for _, q := range x.Targets {
			expressions["panel "+x.Title+": "+q.Expr] = q.Expr
		}
	}
	for _, e := range more {
		expressions["annotation "+e] = e
	}
	for where, e := range expressions {
		for _, name := range selectors(p.t, e) {
			if len(p.memory[name]) == 0 {
				p.t.Errorf("%s: no member exports %s", where, name)
			}
		}
		at := p.began.Add(time.Since(p.began))
		if _, err := p.query(e, at, at); err != nil {
			p.t.Errorf("%s: %v", where, err)
		}
	}
	if len(expressions) < 80 {
		p.t.Errorf("only %d expressions", len(expressions))
	}
}

// testCertificates: the alerts of certificates follow the files, for both listeners.
func testCertificates(t *testing.T, program string) {
	dir := socketDir(t)
	const day = 24 * time.Hour
	issue(t, dir, "client", 100*day)
	issue(t, dir, "peer", 100*day)
	url := "unixs://" + filepath.Join(dir, "m.client")
	m := startMember(t, program, dir, "m",
		"--initial-cluster=m=unix://"+filepath.Join(dir, "m.peer"), "--listen-client-urls="+url,
		"--advertise-client-urls="+url,
		"--cert-file="+filepath.Join(dir, "client.pem"),
		"--key-file="+filepath.Join(dir, "client-key.pem"),
		"--peer-cert-file="+filepath.Join(dir, "peer.pem"),
		"--peer-key-file="+filepath.Join(dir, "peer-key.pem"))
	p := newPrometheus(t)
	members := []*process{m}
	p.await("valid certificates", members, are())
	for _, listener := range []string{"client", "peer"} {
		for _, c := range []struct {
			left time.Duration
			want []string
		}{{20 * day, []string{"VigilCertificateExpires"}},
			{3 * day, []string{"VigilCertificateExpiresSoon"}},
			{-time.Hour, []string{"VigilCertificateExpired"}}, {50 * day, nil}} {
			issue(t, dir, listener, c.left)
			p.await(fmt.Sprintf("the certificate for %s expires in %v", listener, c.left), members,
				are(c.want...))
			for _, a := range p.active {
				if of([]string{a.name}) != nil &&
					(a.labels.Get("listener") != listener || a.labels.Get("use") != "server") {
					t.Errorf("%s", a.labels)
				}
			}
		}
	}
}

// issue writes NAME.pem and NAME-key.pem with a certificate that expires after a time.
func issue(t testing.TB, dir, name string, left time.Duration) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	c := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()),
		DNSNames: []string{"localhost"}, NotBefore: now.Add(-1000 * time.Hour),
		NotAfter:    now.Add(left),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{name +
		"-key.pem": {Type: "PRIVATE KEY", Bytes: secret},
		name + ".pem": {Type: "CERTIFICATE", Bytes: der}} {
		var text bytes.Buffer
		if err := pem.Encode(&text, block); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, file)
		if err := errors.Join(os.WriteFile(path+".new", text.Bytes(), 0o600),
			os.Rename(path+".new", path)); err != nil {
			t.Fatal(err)
		}
	}
}
