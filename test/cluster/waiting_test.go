package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// page reads a page over HTTP; it returns 0 if nobody answers in time.
func page(t testing.TB, address, path string) (code int, body string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err.Error()
	}
	return r.StatusCode, string(b)
}

// wait is what a view must say about a member that is alive and waits.
type wait struct {
	m *member
	// metrics is the address of its metrics listener.
	metrics string
	// why is in its own log, at /readyz and /health, in endpoint status and in doctor.
	why string
	// doctor are further texts of doctor, never are texts that it must not have.
	doctor, never []string
}

// waits compares all views.
func (g *group) waits(w wait) {
	g.t.Helper()
	why := regexp.MustCompile(w.why)
	all := make([]string, len(g.list))
	for i, m := range g.list {
		all[i] = m.Addr()
	}
	var bodies string
	g.until("the reason at "+w.m.name, func() bool {
		bodies = ""
		ok := true
		for _, at := range []string{w.m.Addr(), w.metrics} {
			for _, path := range []string{"/readyz", "/health"} {
				code, body := page(g.t, at, path)
				ok = ok && code == http.StatusServiceUnavailable && why.MatchString(body)
				bodies += fmt.Sprintf("%s%s: %d %s\n", at, path, code, body)
			}
			code, body := page(g.t, at, "/livez")
			ok = ok && code == http.StatusOK
			bodies += fmt.Sprintf("%s/livez: %d %s\n", at, code, body)
		}
		return ok
	})
	var log string
	g.until("the reason in the log", func() bool {
		log = w.m.Log().String()
		for line := range strings.SplitSeq(log, "\n") {
			if strings.Contains(line, "does not serve clients yet") && why.MatchString(line) {
				return true
			}
		}
		return false
	})
	// Not once a tick: the first lines come with changes of the reason, at least 5 s apart.
	if n := strings.Count(log, "does not serve clients yet"); n > 5 {
		g.t.Errorf("%d lines about waiting:\n%s", n, log)
	}
	ctl := func(args ...string) string {
		r := proc.Run(g.t, patience, proc.Spec{Name: proc.Path(g.t, proc.Vigilctl), Args: args})
		return strings.Join(strings.Fields(fmt.Sprintf("%s %s", r.Stdout, r.Stderr)), " ")
	}
	if text := ctl("endpoint", "status", "--command-timeout=2s",
		"--endpoints="+w.m.Addr()); !why.MatchString(text) {
		g.t.Errorf("endpoint status: %s", text)
	}
	var text string
	g.until("the diagnosis", func() bool {
		text = ctl("doctor", "--command-timeout=3s", "--endpoints="+strings.Join(all, ","))
		ok := why.MatchString(text)
		for _, s := range w.doctor {
			ok = ok && strings.Contains(text, s)
		}
		if !ok {
			g.t.Logf("doctor: %s", text)
		}
		return ok
	})
	for _, s := range w.never {
		if strings.Contains(text, s) {
			g.t.Errorf("doctor says %q: %s", s, text)
		}
	}
}

// keepsOut checks that no stock client gets a connection to a member that waits: its puts must all
// succeed at the others.
func (g *group) keepsOut(waiting *member, serving ...*member) {
	g.t.Helper()
	conn := waiting.Dial()
	conn.Connect()
	endpoints := []string{waiting.Addr()}
	for _, m := range serving {
		endpoints = append(endpoints, m.Addr())
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: patience})
	if err != nil {
		g.t.Fatal(err)
	}
	defer c.Close()
	for n := range 50 {
		if _, err := c.Put(proc.Context(g.t), "round-robin", fmt.Sprint(n)); err != nil {
			g.t.Fatalf("put %d: %v", n, err)
		}
	}
	if s := conn.GetState(); s == connectivity.Ready {
		g.t.Errorf("the connection to a member that waits is %v", s)
	}
}

// TestWaitingMembers has members that are alive and do not serve, for one reason after the other.
// Every view says the reason.
func TestWaitingMembers(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	metrics := fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t))
	g := start(t, 3)
	first, second, third := g.list[0], g.list[1], g.list[2]
	g.put(first, "k", "v")
	g.agree()
	backup := filepath.Join(dir(t), "backup.db")
	ctl := func(args ...string) {
		t.Helper()
		if r := proc.Run(t, patience,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args}); r.Code != 0 {
			t.Fatalf("%q: %s", args, r.Stderr)
		}
	}
	ctl("snapshot", "save", backup, "--endpoints="+first.Addr())
	withMetrics := append(slices.Clone(g.args), "--listen-metrics-urls=http://"+metrics)
	third.SetArgs(withMetrics...)

	for _, m := range g.list {
		m.Kill()
	}
	third.Launch()
	g.waits(wait{m: third, metrics: metrics,
		why: `waiting for a majority \(2 of 3 voting members\): m1, m2 missing; last error of m1: dial tcp \S+ connect: connection refused; of m2: `,
		doctor: []string{"m3: is alive at " + third.Addr() + ", and waiting for",
			"no endpoint serves clients", "need not be started again"},
		never: []string{third.Addr() + ": does not answer"}})
	for _, path := range []string{"/console/", "/v3/kv/range"} {
		if code, body := page(t, third.Addr(), path); code != http.StatusServiceUnavailable ||
			!strings.Contains(body, "does not serve clients yet: waiting for a majority") {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	for _, path := range []string{"/version", "/metrics", "/debug/vars"} {
		if code, _ := page(t, third.Addr(), path); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
	// A member that waits can be stopped at once, also with clients that wait for it.
	third.Dial().Connect()
	if code := third.Stop(); code != 0 {
		t.Errorf("a member that waits ends with %d", code)
	}

	// Two directories are swapped. Started like that the two would take each other's name in the
	// list of members.
	swap := func() {
		t.Helper()
		a, b := second.DataDir(), third.DataDir()
		for _, names := range [][2]string{{a, a + ".moved"}, {b, a}, {a + ".moved", b}} {
			if err := os.Rename(names[0], names[1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	swap()
	first.Launch()
	for _, m := range []*member{second, third} {
		m.Launch()
		code := m.Wait()
		if log := m.Log().String(); code != 2 ||
			!regexp.MustCompile(`vigil: data directory \S+ belongs to member (m2|m3) .*, and --name=`+m.name+` with .*the data directories of the two are swapped; start each member with its own --data-dir`).MatchString(log) {
			t.Errorf("%s ends with %d:\n%s", m.name, code, m.Log().Tail(5))
		}
	}
	swap()
	second.Launch()
	third.Launch()
	for _, m := range g.list {
		m.Ready()
	}

	// One directory is a copy of another one's, whose member runs; the name says that the data are
	// at the right place.
	third.Kill()
	kept := third.DataDir() + ".kept"
	second.Kill()
	if err := os.Rename(third.DataDir(), kept); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(third.DataDir(), os.DirFS(second.DataDir())); err != nil {
		t.Fatal(err)
	}
	second.Restart()
	third.SetArgs(append(slices.Clone(withMetrics), "--name=m2")...)
	third.Launch()
	g.logged(third, "the peer URLs given are those of another member")
	g.waitsOrServes(third)
	third.Kill()
	if err := os.RemoveAll(third.DataDir()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(kept, third.DataDir()); err != nil {
		t.Fatal(err)
	}
	third.SetArgs(withMetrics...)
	third.Restart()

	// One is restored alone, and so belongs to another cluster.
	third.Kill()
	if err := os.Rename(third.DataDir(), kept); err != nil {
		t.Fatal(err)
	}
	ctl("snapshot", "restore", backup, "--data-dir="+third.DataDir(), "--name=m3",
		"--initial-cluster="+g.initialCluster(),
		"--initial-advertise-peer-urls="+third.peerURL, "--initial-cluster-token=alone")
	third.Launch()
	g.waits(wait{m: third, metrics: metrics,
		why: `waiting for a majority \(2 of 3 voting members\): m1, m2 missing; last error of m1: it belongs to another cluster, \w+, and this member to \w+; of m2: it belongs to another cluster`,
		doctor: []string{"m3: is alive, and waiting for",
			"m3: m1, m2 refuse it: the member at its peer URL belongs to another cluster:",
			"restore this member from the file that the others were restored from"},
		never: []string{"start it again", "start the other members again"}})
	g.keepsOut(third, first, second)
	g.refuses(first, third, "wrong cluster")
	third.Kill()

	// One begins with another token, before it has data.
	if err := os.RemoveAll(third.DataDir()); err != nil {
		t.Fatal(err)
	}
	third.SetArgs(append(slices.Clone(withMetrics), "--initial-cluster-token=another")...)
	third.Launch()
	g.waits(wait{m: third, metrics: metrics,
		why:    `waiting for its start: a member of --initial-cluster belongs to another cluster, \w+, and this one would make \w+; `,
		doctor: []string{"m3: is alive, and waiting for its start"},
		never:  []string{"start it again,", "start the other members again"}})
	g.keepsOut(third, first, second)
	third.Kill()
	if err := os.Rename(kept, third.DataDir()); err != nil {
		t.Fatal(err)
	}
	third.SetArgs(withMetrics...)
	third.Restart()
	g.agree()
}

// waitsOrServes waits until a member says what it waits for, or serves.
func (g *group) waitsOrServes(m *member) {
	g.t.Helper()
	g.until("a word of "+m.name, func() bool {
		code, body := page(g.t, m.Addr(), "/readyz")
		return code == http.StatusOK || code == http.StatusServiceUnavailable &&
			strings.Contains(body, "waiting for")
	})
}

// refuses waits until a member reports why it cannot reach another one.
func (g *group) refuses(m, other *member, reason string) {
	g.t.Helper()
	var body string
	defer func() {
		if g.t.Failed() {
			g.t.Log(body)
		}
	}()
	g.until("a failure of the reason "+reason, func() bool {
		_, body = page(g.t, m.Addr(), "/debug/vars")
		var vars struct {
			Failures []struct{ Member, Reason, Text string } `json:"peer_failures"`
		}
		return json.Unmarshal([]byte(body), &vars) == nil && len(vars.Failures) == 1 &&
			vars.Failures[0].Reason == reason
	})
}

// TestWaitingForTLS has a member whose peer certificate is of another authority.
func TestWaitingForTLS(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	ca, other := pki.New(t), pki.New(t)
	ca.Issue("member", nil)
	other.Issue("member", nil)
	metrics := fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t))
	g := run(&group{t: t, secure: true, args: flags(ca, "member")}, 3)
	g.agree()
	third := g.list[2]
	third.Kill()
	third.SetArgs(append(append(slices.Clone(third.cfg.Args), flags(other, "member")...),
		"--listen-metrics-urls=http://"+metrics)...)
	third.Launch()
	g.waits(wait{m: third, metrics: metrics,
		why: `waiting for a majority \(2 of 3 voting members\): m1, m2 missing; last error of m1: .*TLS.*; of m2: .*TLS`,
		doctor: []string{"m3: is alive, and waiting for", "refuse it: TLS fails: ",
			"--peer-trusted-ca-file of both members"},
		never: []string{"start it again,", "start the other members again"}})
	g.keepsOut(third, g.list[0], g.list[1])
}
