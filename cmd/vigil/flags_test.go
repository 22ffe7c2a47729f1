package main

import (
	"bytes"
	"errors"
	"flag"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestParse(t *testing.T) {
	o, err := parse(
		[]string{"--name=a", "-data-dir", "x", "--name", "b", "--unsafe-no-fsync",
			"--election-timeout", "2500", "--log-level=debug",
			"--listen-client-urls", "http://127.0.0.1:1, http://127.0.0.1:2", "--"},
		[]string{"ETCD_NAME=env", "ETCD_MAX_TXN_OPS=7", "ETCD_FUTURE=1", "HOME=/"})
	if err != nil {
		t.Fatal(err)
	}
	c := o.config
	if c.Name != "b" || c.DataDir != "x" || !c.UnsafeNoSync ||
		c.ElectionTimeout != 2500*time.Millisecond || c.MaxTxnOps != 7 {
		t.Errorf("%+v", c)
	}
	if len(c.ListenClientURLs) != 2 || c.ListenClientURLs[1] != "http://127.0.0.1:2" {
		t.Errorf("client URLs %q", c.ListenClientURLs)
	}
	if o.log.level != "debug" {
		t.Errorf("log level %v", o.log.level)
	}
	if len(o.unknownVars) != 1 || o.unknownVars[0] != (unknownVar{name: "ETCD_FUTURE"}) {
		t.Errorf("unknown variables %q", o.unknownVars)
	}
}

// TestMistakes: each names the flag or variable, and what it wants.
func TestMistakes(t *testing.T) {
	for _, tc := range []struct {
		args, env []string
		want      string
	}{
		{args: []string{"--nme=a"}, want: "there is no flag --nme; did you mean --name?"},
		{args: []string{"--max-txn-ops=-1"}, want: "want a whole number from 0"},
		{args: []string{"--max-txn-ops=1048577"},
			want: "--max-txn-ops: 1048577 is outside 1 to 1048576"},
		{args: []string{"--max-request-bytes=267386881"},
			want: "--max-request-bytes: 267386881 is outside 1 to 267386880"},
		{args: []string{"--max-concurrent-streams=4294967296"}, want: "4294967295"},
		{args: []string{"--heartbeat-interval=1s"}, want: "milliseconds"},
		{args: []string{"--grpc-keepalive-timeout=5"}, want: "want a duration"},
		{args: []string{"--corrupt-check-time=1"}, want: "or 0"},
		{args: []string{"--compact-hash-check-time=0"}, want: "above 0"},
		{args: []string{"--feature-gates=InitialCorruptCheck=maybe"},
			want: "InitialCorruptCheck: want true or false"},
		{args: []string{"--feature-gates=InitialCorruptCheck=true,Flux=true"},
			want: `no feature gate is called "Flux"`},
		{args: []string{"--log-level=loud"},
			want: "want debug, info, warn, error, dpanic, panic or fatal"},
		{args: []string{"--name="}, want: "must not be empty"},
		{args: []string{"--name"}, want: "needs an argument"},
		{args: []string{"--", "--name=a"}, want: `"--" is not a flag`},
		{args: []string{"start"}, want: `"start" is not a flag`},
		{env: []string{"ETCD_UNSAFE_NO_FSYNC=maybe"}, want: "ETCD_UNSAFE_NO_FSYNC"},
	} {
		_, err := parse(tc.args, tc.env)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !errors.Is(err, errUsage) {
			t.Errorf("%q %q: %v, want %q", tc.args, tc.env, err, tc.want)
		}
	}
	if _, err := parse([]string{"-h"}, nil); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("-h: %v", err)
	}
}

func TestComparisonsOfMembers(t *testing.T) {
	for _, c := range []struct {
		args              []string
		state, compaction time.Duration
		noInitial         bool
	}{
		{nil, 10 * time.Minute, time.Minute, false},
		{[]string{"--corrupt-check-time=0", "--compact-hash-check-time=5s"}, -1,
			5 * time.Second, false},
		{[]string{"--corrupt-check-time=1h",
			"--feature-gates=CompactHashCheck=false,LeaseCheckpoint=true"}, time.Hour, -1, false},
		{[]string{"--feature-gates=InitialCorruptCheck=false"}, 10 * time.Minute,
			time.Minute, true},
		{[]string{"--feature-gates=InitialCorruptCheck=true,CompactHashCheck=true"},
			10 * time.Minute, time.Minute, false},
	} {
		o, err := parse(c.args, nil)
		if err != nil {
			t.Fatal(err)
		}
		if d := o.config.WithDefaults(); d.CorruptCheckInterval != c.state ||
			d.CompactHashCheckInterval != c.compaction || d.NoInitialCorruptCheck != c.noInitial {
			t.Errorf("%q: %v, %v, %v", c.args, d.CorruptCheckInterval, d.CompactHashCheckInterval,
				d.NoInitialCorruptCheck)
		}
	}
}

// TestUsage: every flag is in the help, with its default.
func TestUsage(t *testing.T) {
	var b bytes.Buffer
	usage(&b)
	o := newOptions()
	o.config = o.config.WithDefaults()
	o.each(func(opt *option) {
		if !strings.Contains(b.String(), "\n  --"+opt.name) {
			t.Errorf("--%s is not in the help", opt.name)
		}
		if d := opt.preset(); d != "" && !strings.Contains(b.String(), "(default "+d+")") {
			t.Errorf("the default of --%s is not in the help", opt.name)
		}
		// What the help shows can be given.
		if d := opt.get(); d != "" {
			if err := opt.set(d); err != nil || opt.get() != d {
				t.Errorf("--%s=%s, its default: %v, and it is %s", opt.name, d, err, opt.get())
			}
		}
	})
}

func TestGrowth(t *testing.T) {
	const mb = 1 << 20
	for _, c := range []struct {
		live     uint64
		headroom float64
		want     int
	}{
		{0, 4 * mb, 100}, {mb, 4 * mb, 100}, {mb, 80 * mb, mostGrowth}, {80 * mb, 80 * mb, 100},
		{100 * mb, 80 * mb, 80}, {8 << 30, 80 * mb, leastGrowth},
	} {
		if got := growth(c.live, c.headroom); got != c.want {
			t.Errorf("growth of %d live bytes with a headroom of %v is %d %%, want %d", c.live,
				c.headroom, got, c.want)
		}
	}
}

// The headroom grows with what a collection costs, and shrinks with what the work between two of
// them costs; both ends are bounded.
func TestHeadroom(t *testing.T) {
	const mb = 1 << 20
	small, large := headroomOf(3*mb, 1.5, 25), headroomOf(10*mb, 1.5, 25)
	if small < leastHeadroom || large < 2*small || headroomOf(10*mb, 1.5, 50) > large*0.51 ||
		headroomOf(10*mb, 0.75, 25) > large*0.8 {
		t.Errorf("headrooms %v, %v, %v, %v", small, large, headroomOf(10*mb, 1.5, 50),
			headroomOf(10*mb, 0.75, 25))
	}
	if headroomOf(0, 1.5, 1000) != leastHeadroom || headroomOf(40*mb, 1.5, 10) != mostHeadroom ||
		headroomOf(8<<30, 1.5, 10) != 4<<30 {
		t.Errorf("headrooms without bounds: %v, %v, %v", headroomOf(0, 1.5, 1000),
			headroomOf(40*mb, 1.5, 10), headroomOf(8<<30, 1.5, 10))
	}
	if a, b := headroomOf(5*mb, 1.5, 25), headroomOf(18*mb, 1.5, 25); b < 1.8*a || b > 2*a {
		t.Errorf("a collection of about four times the cost has a headroom of %v after %v, want about twice", b, a)
	}
	for _, c := range []struct {
		seconds           float64
		collections, scan uint64
		want              float64
	}{
		// 0.5 for each byte, of which the average with the 1 before is half
		{0.0106, 2, 10_000_000, 0.75},
		{1, 0, 10_000_000, 1}, {1, 2, 1000, 1}, // nothing was measured
		{1, 2, 10_000_000, 1 + 0.5/32}, {0, 2, 10_000_000, 0.65}, // limits, and a slow rise
	} {
		if got := costPerByte(1, c.seconds, c.collections, c.scan); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%d collections of %d bytes in %v s: %v ns for each byte, want %v",
				c.collections, c.scan, c.seconds, got, c.want)
		}
	}
	if cpuPerByte(25, time.Second, 100) != 25 || cpuPerByte(25, 0, 1<<30) != 25 ||
		cpuPerByte(25, 35*leastHeadroom, leastHeadroom) != 30 {
		t.Error("the processor time for each byte is not an average of long measurements")
	}
	if !over(mb/4, 8*mb) || over(mb, 8*mb) {
		t.Error("work is over when a quarter of the headroom was not used")
	}
}

// TestFreeMemory: at rest nothing is kept for work, either.
func TestFreeMemory(t *testing.T) {
	var pool sync.Pool
	for range 10 { // the first one is for the same processor only
		pool.Put(new([1 << 10]byte))
	}
	freeMemory()
	if pool.Get() != nil {
		t.Error("a pool keeps memory")
	}
}

// TestRest: a heap that grows while little work goes on is not collected all the time.
func TestRest(t *testing.T) {
	const mb, takes = 1 << 20, 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		times := 0
		r := rest{free: func() { times++; time.Sleep(takes) }}
		if !r.tryFree(1000 * mb) {
			t.Fatal("the start is work, too")
		}
		r.floor = 1000 * mb
		last := time.Now()
		if time.Sleep(time.Hour); r.tryFree(1000*mb + 50*mb) {
			t.Error("memory is returned for little growth")
		}
		for size := uint64(1100 * mb); times < 4; time.Sleep(restInterval) {
			if !r.tryFree(size) {
				continue
			}
			if idle := time.Since(last) - takes; idle < restRatio*takes {
				t.Errorf("memory is returned again after %v, and takes %v", idle, takes)
			}
			last = time.Now()
		}
	})
}

// TestUsersInURLs: no password in a URL is printed or logged, in whichever setting it is, and where
// it would be logged later it is rejected.
func TestUsersInURLs(t *testing.T) {
	values := map[string]string{
		"archive":                     "s3://b?endpoint=https://key:sesame@h:1&region=x",
		"discovery-endpoints":         "h:1,https://root:sesame@h:1",
		"distributed-tracing-address": "http://root:sesame@h:1",
		"listen-client-urls":          "http://root:sesame@127.0.0.1:1",
		"cors":                        "https://root:sesame@h",
		"initial-cluster":             "default=http://root:sesame@h:1",
		"discovery-srv":               "https://root:se@same@h", "metrics": "http://root:sesame@h",
		"advertise-client-urls": "http://a:1,http://root:sesame@h:1",
	}
	for name, value := range values {
		o, err := parse([]string{"--" + name + "=" + value}, nil)
		if err != nil && strings.Contains(err.Error(), "same") {
			t.Errorf("--%s: %v", name, err)
		}
		var out bytes.Buffer
		for _, format := range []string{"simple", "json", "yaml"} {
			if err := o.printEffective(&out, format); err != nil {
				t.Fatal(err)
			}
		}
		o.logConfiguration(slog.New(slog.NewJSONHandler(&out, nil)))
		if strings.Contains(out.String(), "same") {
			t.Errorf("--%s=%s is printed", name, value)
		}
	}
	for _, name := range []string{"archive", "discovery-endpoints"} {
		if _, err := parse([]string{"--" + name + "=" + values[name], "--discovery-token=t"},
			nil); err == nil || !strings.Contains(err.Error(), "--"+name+"=") {
			t.Errorf("--%s: %v", name, err)
		}
	}
	// Other characters of the kind are no passwords.
	for name, value := range map[string]string{"archive": "gs://b?access_id=svc@project.example&prefix=a@b/", "discovery-srv": "a@b"} {
		o, err := parse([]string{"--" + name + "=" + value}, nil)
		if got := find(t, o, name).Value; got != value {
			t.Errorf("--%s is shown as %s (%v)", name, got, err)
		}
	}
}
