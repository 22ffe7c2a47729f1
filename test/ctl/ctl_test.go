// Package ctl runs transcripts of the stock etcdctl against the server under test and compares
// what it prints to the letter. Each file of testdata has a server of its own.
//
// A transcript is in the format of cockroachdb/datadriven; run the test with -rewrite and
// VIGIL_SUBJECT=etcd to record what the stock server answers. The commands:
//
//   - etcdctl: the first line of the input is the command line, the rest its standard input. The
//     output is what the program wrote; after a failure, with the exit code and standard error.
//   - watch lines=n: a command that does not end by itself; it is ended once it wrote n lines.
//   - raise member=id alarm=name: raises an alarm.
//   - LEASE1, LEASE2 and so on stand for the ids of leases that were granted, in the order of their
//     granting.
//   - sh: the lines of the input are commands, run one after another, each shown with its output.
package ctl

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/test/proc"
)

// timeout bounds one command.
const timeout = time.Minute

func TestTranscripts(t *testing.T) { transcripts(t, proc.Etcdctl, proc.Subject()) }

// TestVigilctl has Vigil's own program say what etcdctl says, about a server of either kind.
func TestVigilctl(t *testing.T) {
	for _, server := range []proc.Program{proc.Vigil, proc.Etcd} {
		t.Run(string(server), func(t *testing.T) {
			if testing.Short() && server == proc.Etcd {
				t.Skip("make processes tests this; vigilctl's scripts run against etcd too")
			}
			transcripts(t, proc.Vigilctl, server)
		})
	}
}

func transcripts(t *testing.T, program, server proc.Program) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Parallel()
		s := proc.Start(t, proc.Config{Program: server, Memory: true, Advertise: "127.0.0.1",
			Args: []string{"--bcrypt-cost=4"}})
		r := &runner{etcdctl: proc.Path(t, program), server: s}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "etcdctl":
				line, stdin, _ := strings.Cut(d.Input, "\n")
				return r.run(t, line, stdin)
			case "sh":
				var out strings.Builder
				for line := range strings.SplitSeq(d.Input, "\n") {
					fmt.Fprintf(&out, "$ %s\n%s", line, r.run(t, line, ""))
				}
				return out.String()
			case "raise":
				var member uint64
				var name string
				d.ScanArgs(t, "member", &member)
				d.ScanArgs(t, "alarm", &name)
				// etcdctl cannot do this.
				_, err := pb.NewMaintenanceClient(s.Dial()).Alarm(proc.Context(t), &pb.AlarmRequest{
					Action: pb.AlarmRequest_ACTIVATE, MemberID: member,
					Alarm: pb.AlarmType(pb.AlarmType_value[name])})
				return fmt.Sprintln(err)
			case "watch":
				var lines int
				d.ScanArgs(t, "lines", &lines)
				return r.watch(t, d.Input, lines)
			}
			t.Fatalf("%s: no command is called %q", d.Pos, d.Cmd)
			return ""
		})
	})
}

type runner struct {
	etcdctl string
	server  *proc.Server
	leases  []string // the ids that the server chose, in hexadecimal
}

func (r *runner) env() []string { return []string{"ETCDCTL_ENDPOINTS=" + r.server.Addr()} }

func (r *runner) run(t *testing.T, line, stdin string) string {
	t.Helper()
	if stdin != "" {
		stdin += "\n\n\n" // the format takes blank lines off the end
	}
	res := proc.Run(t, timeout, proc.Spec{
		Name: r.etcdctl, Args: split(t, r.known(line)), Env: r.env(), Stdin: stdin,
	})
	out := res.Stdout
	if res.Code != 0 {
		out += fmt.Sprintf("exit %d\n", res.Code)
	}
	return normalise(r.named(out + errors(res.Stderr)))
}

// errors drops the client library's own log lines, and what etcdctl says about usage after an
// error.
func errors(stderr string) string {
	var out strings.Builder
	stderr, _, _ = strings.Cut(stderr, "Usage:\n")
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, `{"level":`) {
			out.WriteString(line)
		}
	}
	return out.String()
}

// watch runs a command until it wrote a number of lines.
func (r *runner) watch(t *testing.T, line string, lines int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var out proc.Log
	cmd := exec.CommandContext(ctx, r.etcdctl, split(t, r.known(line))...)
	cmd.Env = append(cmd.Environ(), r.env()...)
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	select {
	case <-out.Lines(lines):
	case err := <-exited:
		if ctx.Err() != nil {
			t.Fatalf("%s: not %d lines in %s:\n%s", line, lines, timeout, out.String())
		}
		return normalise(r.named(out.String() + fmt.Sprintf("%v\n", err)))
	}
	cancel()
	<-exited
	return normalise(r.named(out.String()))
}

// varying matches what is another number at every run, or on another server.
var varying = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`"(raft_term|raftTerm|raftIndex|raftAppliedIndex|dbSize|dbSizeInUse)":[1-9]\d*`), `"$1":N`},
	// The text form of a message has one blank or two between fields, by the build of the program.
	{regexp.MustCompile(`memberID:(\d+) +alarm:`), `memberID:$1 alarm:`},
	{regexp.MustCompile(`remaining\(\d+s\)`), `remaining(Ns)`},
	{regexp.MustCompile(`"ttl":\d+,"granted-ttl"`), `"ttl":N,"granted-ttl"`},
	{regexp.MustCompile(`"(RaftTerm|RaftIndex)" : [1-9]\d*`), `"$1" : N`},
	{regexp.MustCompile(`took = \S+`), `took = T`},
	{regexp.MustCompile(`took \S+s\b`), `took T`},
	{regexp.MustCompile(`"took":"[^"]+"`), `"took":"T"`},
	{regexp.MustCompile(`127\.0\.0\.1:\d{5}\b`), `ENDPOINT`},
	// Words of Go's packages in messages of the stock program, which Vigil's does not have.
	{regexp.MustCompile(`Error: (strconv\.ParseInt)`), `Error: bad revision: $1`},
	{regexp.MustCompile(`strconv\.ParseInt: parsing ("[^"]*"): invalid syntax`),
		`want a whole number, not $1`},
	// Additional output of Vigil's program.
	{regexp.MustCompile(`(?m)^(  )?revision \d+ was asked for; .*\n`), ``},
	{regexp.MustCompile(`(?m)^  .*: the quota of \d+ bytes is used up .*\n  next: vigilctl doctor\n`), ``},
	{regexp.MustCompile(`(?m)^vigilctl version: .*\nGit SHA: .*\nGit Tree: .*\n`), ``},
	{regexp.MustCompile(`(Error: (?:unknown consistency flag|bad sort (?:order|target)) \S+): .*`),
		`$1`},
}

func normalise(s string) string {
	for _, v := range varying {
		s = v.re.ReplaceAllString(s, v.to)
	}
	return s
}

// split cuts a command line into words; quotes of either kind keep blanks together, and between
// double quotes \x00 and the like are read as Go reads them.
func split(t *testing.T, line string) []string {
	t.Helper()
	var words []string
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimSpace(rest) {
		word, tail, err := next(rest)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		words, rest = append(words, word), tail
	}
	return words
}
