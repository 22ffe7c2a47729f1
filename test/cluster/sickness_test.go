package cluster

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// TestDoctorSicknesses brings about one sickness after the other in one cluster of real members,
// and compares everything that doctor prints about each, and about the healthy cluster between
// them.
func TestDoctorSicknesses(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	const mib = 1 << 20
	g := start(t, 3, steady, unchecked, "--corrupt-check-time=0", "--scrub-pause=200ms",
		"--scrub-bytes-per-second=1000000000", fmt.Sprint("--quota-backend-bytes=", 24*mib))
	g.fill()
	first, last := g.list[0], g.list[2]
	asked := "--endpoints=" + first.Addr()
	sick := func(name string) {
		t.Helper()
		g.doctor(name, patient, unhurried, asked)
	}
	sick("healthy")
	g.hurried()
	w := g.write()
	w.more(100)
	sick("healthy")
	w.more(100)
	sick("healthy")
	w.check()

	// Nobody compacts, or not often enough.
	g.doctor("never-compacted", patient, unhurried, asked, "--limit=revisions=200")

	// Alarms that somebody raised by hand.
	alarm := func(what pb.AlarmRequest_AlarmAction, kind pb.AlarmType, m *member) {
		t.Helper()
		if _, err := pb.NewMaintenanceClient(first.Dial()).Alarm(proc.Context(t),
			&pb.AlarmRequest{Action: what, Alarm: kind, MemberID: m.id(g)}); err != nil {
			t.Fatal(err)
		}
	}
	alarm(pb.AlarmRequest_ACTIVATE, pb.AlarmType_CORRUPT, last)
	sick("alarm")
	alarm(pb.AlarmRequest_DEACTIVATE, pb.AlarmType_CORRUPT, last)
	// The member serves watches once it has applied that.
	for until := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		_, err := last.client.Get(proc.Context(t), "k")
		if err == nil {
			break
		}
		if time.Now().After(until) {
			t.Fatal(err)
		}
	}

	// A client that does not read, while values are written up to the limit.
	watching, stop := context.WithCancel(t.Context())
	defer stop()
	watch, err := pb.NewWatchClient(last.Dial()).Watch(watching)
	if err != nil {
		t.Fatal(err)
	}
	if err := watch.Send(&pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("large"), RangeEnd: []byte("largf"), StartRevision: 1}}}); err != nil {
		t.Fatal(err)
	}
	large := func(n int) error {
		_, err := first.client.Put(proc.Context(t), fmt.Sprintf("large%02d", n),
			strings.Repeat(string(rune('a'+n)), mib))
		return err
	}
	for n := range 20 {
		if err := large(n); err != nil {
			t.Fatal(err)
		}
	}
	sick("stalled-and-quota-near")
	n := 20
	for ; err == nil && n < 26; n++ {
		err = large(n)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("put %d: %v", n, err)
	}
	sick("stalled-and-quota-reached")

	// The way out that doctor names: the alarm is lowered by itself.
	stop()
	if _, err := first.client.Delete(proc.Context(t), "large", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	compact := func() {
		t.Helper()
		r, err := first.client.Get(proc.Context(t), "k")
		if err == nil {
			_, err = first.client.Compact(proc.Context(t), r.Header.Revision)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	compact()
	sick("healthy")

	w = g.write()
	w.more(300)
	w.check()
	g.doctor("compacted-long-ago", patient, unhurried, asked, "--limit=revisions=200")
}

// TestDoctorVersionsClocksData has a cluster whose members differ: in their versions, their clocks,
// and their data.
func TestDoctorVersionsClocksData(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 3, steady, unchecked, "--corrupt-check-time=0")
	g.fill()
	first, last := g.list[0], g.list[2]
	asked := "--endpoints=" + first.Addr()

	g.upgrade(last, proc.Next)
	g.doctor("two-versions", patient, unhurried, asked)
	g.upgrade(last, proc.Vigil)
	g.doctor("healthy", patient, unhurried, asked)

	second := g.list[1]
	moved := datesAhead(t, second.Addr(), time.Minute)
	second.Kill()
	second.SetArgs(append(slices.Clone(g.args), "--advertise-client-urls=http://"+moved)...)
	second.Restart()
	g.doctor("clocks-differ", patient, unhurried, asked, "--endpoints="+moved)
	second.Kill()
	second.SetArgs(g.args...)
	second.Restart()
	g.doctor("healthy", patient, unhurried, asked)

	g.differ(last, "THE VALUE OF K")
	last.Restart()
	g.doctor("data-differ", patient, unhurried, asked)
}

// TestDoctorDamage damages a sealed segment of a member.
func TestDoctorDamage(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 3, steady, "--scrub-pause=200ms", "--scrub-bytes-per-second=1000000000")
	first, last := g.list[0], g.list[2]
	value := strings.Repeat("v", 64<<10)
	for n := range 200 {
		g.put(first, fmt.Sprintf("k%03d", n), value)
	}
	var sealed []string
	g.until("a sealed segment", func() bool {
		sealed, _ = filepath.Glob(filepath.Join(last.DataDir(), "history", "*.seg"))
		return len(sealed) > 0
	})
	f, err := os.OpenFile(slices.Min(sealed), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte{'w'}, 1<<20)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	g.doctor("damaged-segment", patient, unhurried, "--endpoints="+first.Addr())
}

// TestDoctorDisks has a member with a slow disk, which then is full.
func TestDoctorDisks(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 2, steady, "--warning-apply-duration=1m")
	first := g.list[0]
	asked := "--endpoints=" + first.Addr()
	last := g.add(first, "m3", false)
	last.cfg.Wrap = slowDisk(t, 150*time.Millisecond)
	volume, owned := small(t, 512<<20)
	last.cfg.DataDir = filepath.Join(volume, "data")
	g.join(last)
	// As many writes at each member as are enough for a first judgement, and no more.
	for n := range 110 {
		r, err := first.client.Put(proc.Context(t), "k", fmt.Sprint(n))
		if err != nil {
			t.Fatal(err)
		}
		g.until("the same revision",
			func() bool {
				st := g.status(last)
				return st != nil &&
					st.Header.Revision >= r.Header.Revision
			})
	}
	g.doctor("slow-disk", patient, "--skip=network",
		"--limit=raft-log=60ms,raft-log-critical=100ms,store=10s,apply=10s", asked)

	if !owned {
		return
	}
	exhaust(t, volume)
	g.until("a put that finds no room", func() bool {
		_, err := last.client.Put(proc.Context(t), "k", strings.Repeat("v", 1<<20))
		return err != nil
	})
	g.doctor("full-disk", patient, unhurried, asked)
}

// TestDoctorLearner has a learner whose disk is too slow for what the cluster writes.
func TestDoctorLearner(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 3, steady)
	asked := "--endpoints=" + g.list[0].Addr()
	w := g.write()
	learner := g.add(g.list[0], "m4", true)
	learner.cfg.Wrap = slowDisk(t, time.Second)
	g.join(learner)
	g.doctor("lagging-learner", patient, unhurried, asked, "--limit=lag=5")
	w.check()
	g.doctor("learner", patient, unhurried, asked)
}

// TestDoctorCertificates has certificates of all kinds that expire soon, and one that has expired.
func TestDoctorCertificates(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	ca := pki.New(t)
	expires := func(name string, in time.Duration) {
		ca.Issue(name, func(c *x509.Certificate) {
			c.NotBefore,
				c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(in)
		})
	}
	const day = 24 * time.Hour
	expires("server", 20*day)
	expires("client", 3*day)
	expires("peer", 5*day)
	g := run(&group{t: t, secure: true, secureClients: true,
		args: append(flags(ca, "peer"), "--cert-file="+ca.File("server.pem"),
			"--key-file="+ca.File("server-key.pem"),
			"--trusted-ca-file="+ca.File("authority.pem"), "--client-cert-auth")}, 1)
	args := []string{patient, unhurried, "--endpoints=https://" + g.list[0].Addr(),
		"--cacert=" + ca.File("authority.pem"), "--cert=" + ca.File("client.pem"),
		"--key=" + ca.File("client-key.pem")}
	g.doctor("certificates-expire", args...)
	g.doctor("no-client-certificate", append(args[:4:4], "--command-timeout=2s")...)
	expires("server", -time.Minute)
	g.doctor("certificate-expired", append(args, "--command-timeout=2s")...)
	expires("server", 400*day)
	expires("client", -time.Minute)
	g.doctor("client-certificate-expired", append(args, "--command-timeout=2s")...)
}

// TestDoctorSettings has a member with other settings than the others.
func TestDoctorSettings(t *testing.T) {
	onlyVigil(t)
	t.Parallel()
	g := start(t, 3, steady)
	asked := "--endpoints=" + g.list[0].Addr()
	last := g.list[2]
	last.Kill()
	last.SetArgs(append(slices.Clone(g.args), "--quota-backend-bytes=50000000",
		"--max-request-bytes=100000", "--auto-compaction-retention=1h",
		"--auth-token=jwt,sign-method=HS256,priv-key="+secret(t))...)
	last.Restart()
	g.doctor("settings-differ", patient, unhurried, asked)
}

// secret writes a key for tokens.
func secret(t testing.TB) string {
	t.Helper()
	name := filepath.Join(dir(t), "token.key")
	if err := os.WriteFile(name, []byte(strings.Repeat("k", 64)), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestDoctorSlowPhase has a member whose disk is fast, turns slow, and is fast again, while a
// client writes.
func TestDoctorSlowPhase(t *testing.T) {
	if testing.Short() {
		t.Skip("takes several minutes")
	}
	onlyVigil(t)
	t.Parallel()
	g := start(t, 1, "--warning-apply-duration=1m")
	m := g.list[0]
	writing, stop := context.WithCancel(t.Context())
	stopped, puts := make(chan struct{}), new(atomic.Int64)
	go func() {
		defer close(stopped)
		for writing.Err() == nil {
			_, _ = m.client.Put(writing, "k", "v")
			puts.Add(1)
			time.Sleep(20 * time.Millisecond)
		}
	}()
	defer func() { stop(); <-stopped }()
	await := func(phase string, slow bool) {
		t.Helper()
		began, text := time.Now(), ""
		for end := began.Add(5 * time.Minute); time.Now().Before(end); time.Sleep(2 * time.Second) {
			text = g.diagnosis(patient, "--endpoints="+m.Addr(), "--skip=network",
				"--limit=raft-log=60ms,raft-log-critical=100ms,store=10s,apply=10s")
			judged := !strings.Contains(text, "too few to judge by") || slow
			if found := regexp.MustCompile(`CRITICAL  m1: writing the raft log to the disk takes TIME or more in one\sof \d+\scases,\sof\sN\sin\sthe\slast`).MatchString(text); found == slow && judged {
				t.Logf("%s: after %v", phase, time.Since(began).Round(time.Second))
				return
			}
		}
		t.Fatalf("%s: %s", phase, text)
	}
	// So that the last minute is not the whole life of the member.
	for end := time.Now().Add(5 * time.Minute); windows(t, m) < 2; time.Sleep(time.Second) {
		if time.Now().After(end) {
			t.Fatal("the member tells of no minute but its whole life")
		}
	}
	await("fast", false)
	delayed := slowDisk(t, 150*time.Millisecond)
	tracer := exec.Command(delayed[0],
		append(slices.DeleteFunc(delayed[1:], func(s string) bool { return s == "--seccomp-bpf" }),
			"-p", fmt.Sprint(m.Pid()))...)
	if err := tracer.Start(); err != nil {
		t.Fatal(err)
	}
	slowed := puts.Load()
	await("slow", true)
	g.until("so many slow writes that they stay a percent of all for many minutes",
		func() bool { return puts.Load() >= slowed+240 })
	if err := tracer.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = tracer.Wait()
	await("fast again", false)
}

// windows returns how many windows a member tells of.
func windows(t testing.TB, m *member) int {
	t.Helper()
	r, err := http.Get("http://" + m.Addr() + "/debug/vars")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	var vars struct{ Recent []any }
	if err := json.NewDecoder(r.Body).Decode(&vars); err != nil {
		t.Fatal(err)
	}
	return len(vars.Recent)
}

// TestDoctorStock: of a member of etcd, which keeps no figures of the last minutes, doctor says how
// it has looked.
func TestDoctorStock(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Etcd, Memory: true})
	r := proc.Run(t, 2*patience,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"doctor", patient, "--endpoints=" + s.Addr()}})
	text := strings.Join(strings.Fields(r.Stdout), " ")
	if !regexp.MustCompile(`not checked: \S+, disk: \d+ writes of the raft log since it started \d+s ago are too few to judge by`).MatchString(text) || r.Stderr != "" {
		t.Errorf("%d %s%s", r.Code, r.Stdout, r.Stderr)
	}
}
