package cluster

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigil/test/proc"
)

// varies is what differs between two runs of doctor about the same sickness.
var varies = []struct {
	pattern *regexp.Regexp
	text    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{12,16}\b`), "ID"},
	// at any member that answers
	{regexp.MustCompile(`page: https?://\S+/console/docs/`), "page: docs/"},
	{regexp.MustCompile(`leader m\d`), "leader LEADER"},
	{regexp.MustCompile(`revision \d+`), "revision N"},
	{regexp.MustCompile(`hash \d+\sand\snot\s\d+`), "hash N and not N"},
	{regexp.MustCompile(`at (one place|\d+ places)`), "at N places"},
	{regexp.MustCompile(`\d+ (writes of the raft log|commits|applied writes|round trips)`), "N $1"},
	{regexp.MustCompile(`takes [\d.]+(µs|ms|s) or more`), "takes TIME or more"},
	{regexp.MustCompile(`of \d+\sin\sthe\slast`), "of N in the last"},
	{regexp.MustCompile(`in\sthe\slast\s\d+[smh]`), "in the last TIME"},
	{regexp.MustCompile(`by [\d.]+s or more`), "by TIME or more"},
	{regexp.MustCompile(`lags the leader by \d+`), "lags the leader by N"},
	{regexp.MustCompile(`is \d+ revisions behind`), "is N revisions behind"},
	{regexp.MustCompile(`\d+% of the quota`), "N% of the quota"},
	{regexp.MustCompile(`\d+ revisions are kept`), "N revisions are kept"},
	{regexp.MustCompile(`was \S+ ago`), "was TIME ago"},
	{regexp.MustCompile(`no leader for \w+`), "no leader for TIME"},
	{regexp.MustCompile(`expires\sin\s\S+,\son\s[\d-]+`), "expires in TIME"},
	{regexp.MustCompile(`expires in \S+`), "expires in TIME"},
	{regexp.MustCompile(`expired\son\s\S+`), "expired on DATE"},
	{regexp.MustCompile(`current time \S+ is after \S+`), "current time TIME is after TIME"},
	{regexp.MustCompile(`/\S+/([a-z0-9-]+\.pem)`), "DIRECTORY/$1"},
}

// unhurried leaves out the checks whose result is that of the machine: how fast its disk and its
// processor are.
const unhurried = "--skip=disk,network"

// patient is for clusters all of whose members answer, however long a busy machine needs.
const patient = "--command-timeout=60s"

// doctor runs vigilctl doctor until it prints what is in testdata/doctor, and exits with the code
// there: what it finds may take a moment to be seen. With -rewrite it writes the file, once what it
// prints does not change any more.
func (g *group) doctor(name string, args ...string) {
	g.t.Helper()
	file := filepath.Join("testdata", "doctor", name+".txt")
	want, err := os.ReadFile(file)
	f := flag.Lookup("rewrite")
	rewrite := f != nil && f.Value.String() == "true"
	if err != nil && !rewrite {
		g.t.Fatal(err)
	}
	var got, last string
	began := time.Now()
	defer func() { g.t.Logf("%s: %v", name, time.Since(began).Round(time.Millisecond)) }()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
		if got = g.diagnosis(args...); unwrap(got) == unwrap(string(want)) && !rewrite {
			return
		}
		if rewrite && got == last {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				g.t.Fatal(err)
			}
			g.t.Logf("%s:\n%s", name, got)
			return
		}
		if last = got; rewrite {
			time.Sleep(3 * time.Second)
		}
	}
	g.t.Fatalf("%s: got\n%s\nwant\n%s", name, got, want)
}

// diagnosis is the output of vigilctl doctor and its exit code, without what varies.
func (g *group) diagnosis(args ...string) string {
	g.t.Helper()
	r := proc.Run(g.t, 2*patience,
		proc.Spec{Name: proc.Path(g.t, proc.Vigilctl), Args: append([]string{"doctor"}, args...)})
	text := fmt.Sprintf("%s%sexit code %d\n", r.Stdout, r.Stderr, r.Code)
	for _, m := range g.list {
		text = strings.ReplaceAll(text, m.Addr(), "ADDRESS-OF-"+m.name)
	}
	return constant(text)
}

func constant(text string) string {
	for _, v := range varies {
		text = v.pattern.ReplaceAllString(text, v.text)
	}
	return text
}

// begins is how a line begins that does not continue the one before.
var begins = regexp.MustCompile(`^($|CRITICAL  |WARNING  |NOTE  |ok  |not checked: |    next: |    page: |\d+ members?, |members not known, |exit code )`)

// unwrap joins the lines of findings: where they break depends on what varies.
func unwrap(text string) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		if n := len(out); n > 0 && !begins.MatchString(line) {
			out[n-1] += " " + strings.TrimSpace(line)
		} else {
			out = append(out, line)
		}
	}
	return constant(strings.Join(out, "\n"))
}

// hurried asks doctor about everything: only what it may find on a slow machine is excused.
func (g *group) hurried() {
	g.t.Helper()
	g.until("ok of a healthy cluster", func() bool {
		for _, line := range strings.Split(g.diagnosis(patient,
			"--endpoints="+g.list[0].Addr()), "\n") {
			if s := strings.Fields(line); len(s) > 0 && (s[0] == "CRITICAL" || s[0] == "WARNING") &&
				!slow.MatchString(line) {
				g.t.Logf("of a healthy cluster: %s", line)
				return false
			}
		}
		return true
	})
}

var slow = regexp.MustCompile(`takes TIME or more|take \S+ or more|were slow to apply|changes of the leader|writes wait for agreement`)

// slowDisk is a command that runs a member whose disk needs that long for each synchronisation.
func slowDisk(t testing.TB, delay time.Duration) []string {
	t.Helper()
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Fatal("strace is not installed (Debian: apt-get install strace)")
	}
	return []string{strace, "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fdatasync", "-e",
		fmt.Sprintf("inject=fdatasync:delay_enter=%d", delay.Microseconds())}
}

// small mounts a file system of a size until the test ends. It returns a directory on no file
// system of its own, and owned as false, where that is not allowed.
func small(t testing.TB, size int64) (volume string, owned bool) {
	t.Helper()
	volume = filepath.Join(dir(t), "volume")
	if err := os.Mkdir(volume, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("vigil-test", volume, "tmpfs", 0, fmt.Sprint("size=", size)); err != nil {
		t.Logf("no disk will be full, mounting needs root: %v", err)
		return volume, false
	}
	t.Cleanup(func() {
		if err := unix.Unmount(volume, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return volume, true
}

// exhaust takes all the space of a file system.
func exhaust(t testing.TB, volume string) {
	t.Helper()
	f, err := os.Create(filepath.Join(volume, "foreign"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, piece := int64(0), int64(64<<20); piece >= 4096; {
		if err := unix.Fallocate(int(f.Fd()), 0, at, piece); errors.Is(err, unix.ENOSPC) {
			piece /= 4
		} else if err != nil {
			t.Fatal(err)
		} else {
			at += piece
		}
	}
}

var httpDate = regexp.MustCompile(`Date: (\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT)`)

// datesAhead listens at a new address, which it returns, and forwards to another one; the dates in
// answers of HTTP/1.1 are ahead. A process cannot have a time of its own.
func datesAhead(t testing.TB, to string, ahead time.Duration) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", to)
				if err != nil {
					return
				}
				defer out.Close()
				go func() {
					_, _ = io.Copy(out, in)
					_ = out.Close()
				}()
				b := make([]byte, 64<<10)
				for {
					n, err := out.Read(b)
					if err != nil {
						return
					}
					moved := httpDate.ReplaceAllFunc(b[:n], func(line []byte) []byte {
						at, err := http.ParseTime(strings.TrimPrefix(string(line), "Date: "))
						if err != nil {
							return line
						}
						return []byte("Date: " + at.Add(ahead).UTC().Format(http.TimeFormat))
					})
					if _, err := in.Write(moved); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String()
}
