package hang

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vigil/test/proc"
)

// election is the election timeout of the short test: its limits are multiples of it.
const election = 2 * time.Second

func noArgs(int) []string { return nil }

func quiet(int) []string {
	return []string{"--heartbeat-interval=200",
		fmt.Sprintf("--election-timeout=%d", election.Milliseconds())}
}

// A leader whose disk hangs is replaced within two election timeouts. The others take writes and
// keep leases alive, and no lease ends early. The member that hung catches up.
func TestHungLeader(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("TestCompare has the figures of etcd")
	}
	g := start(t, proc.Vigil, quiet)
	for round := range 2 {
		lead, others := g.leader()
		f := g.watchFault(lead, others, 100, 5*election, func() func() {
			lead.disk.Freeze()
			return lead.disk.Thaw
		})
		t.Logf("%+v", f)
		if f.newLeader == 0 || f.newLeader > 2*election || f.outage > 2*election || f.ended > 0 ||
			f.changes != 1 {
			t.Errorf("round %d, with an election timeout of %v: %+v", round, election, f)
		}
	}
	g.leader()
}

// A disk that works every quarter of a second costs no leadership and no lease.
func TestSlowLeader(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("TestCompare has the figures of etcd")
	}
	g := start(t, proc.Vigil, quiet)
	lead, others := g.leader()
	f := g.watchFault(lead, others, 100, 3*election,
		func() func() { return lead.disk.Slow(250 * time.Millisecond) })
	t.Logf("%+v", f)
	if f.newLeader != 0 || f.lost > 0 || f.ended > 0 {
		t.Errorf("%+v", f)
	}
}

// A log that nobody reads holds up nothing.
func TestUnreadLog(t *testing.T) {
	if proc.Subject() != proc.Vigil {
		t.Skip("a stock etcd waits for the reader of its log")
	}
	dir := t.TempDir()
	var pipes []*os.File
	g := start(t, proc.Vigil, func(n int) []string {
		name := filepath.Join(dir, strconv.Itoa(n))
		if err := unix.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		pipes = append(pipes, f)
		t.Cleanup(func() { f.Close() })
		return append(quiet(n), "--log-level=debug", "--log-outputs=stderr,"+name)
	})
	for i, f := range pipes {
		await(t, "the pipe is full", func() bool {
			for range 20 {
				g.members[i].leads(t.Context()) // which it logs
			}
			n, err := unix.IoctlGetInt(int(f.Fd()), unix.TIOCINQ)
			return err == nil && n >= 48<<10
		})
	}
	lead, others := g.leader()
	f := g.watchFault(lead, others, 100, 2*election, func() func() { return func() {} })
	t.Logf("%+v", f)
	if f.newLeader != 0 || f.outage > election || f.lost > 0 || f.ended > 0 {
		t.Errorf("%+v", f)
	}
}

// TestCompare prints what clients of the other members see of a fault of the leader, VIGIL_HANGS
// times for each fault, for a stock etcd and for Vigil.
func TestCompare(t *testing.T) {
	rounds, _ := strconv.Atoi(os.Getenv("VIGIL_HANGS"))
	if rounds == 0 {
		t.Skip("make hangs runs it")
	}
	const lasts = 8 * time.Second
	faults := []struct {
		name       string
		valueBytes int
		begin      func(*disk) func()
	}{
		{"hung", 100, func(d *disk) func() { d.Freeze(); return d.Thaw }},
		{"slow, 250 ms", 100, func(d *disk) func() { return d.Slow(250 * time.Millisecond) }},
		{"slow, 2 s", 100, func(d *disk) func() { return d.Slow(2 * time.Second) }},
		{"full", 256 << 10, (*disk).fill},
	}
	var table strings.Builder
	fmt.Fprintf(&table, "\n| fault of the leader's disk, %d times %v each | program | new leader after | changes | longest time without a put | without a keep-alive | keep-alives lost | kept leases ended | other leases ended in time | late by at most | process ended |\n|---|---|---|---|---|---|---|---|---|---|---|\n", rounds, lasts)
	for _, fault := range faults {
		for _, program := range []proc.Program{proc.Etcd, proc.Vigil} {
			t.Run(fault.name+" "+string(program), func(t *testing.T) {
				g := start(t, program, noArgs)
				var all []figures
				died := 0
				for range rounds {
					lead, others := g.leader()
					f := g.watchFault(lead, others, fault.valueBytes, lasts,
						func() func() { return fault.begin(lead.disk) })
					t.Logf("%+v", f)
					all = append(all, f)
					if !lead.Running() {
						died++
						lead.Restart()
					}
				}
				table.WriteString(row(fault.name, program, all, died))
			})
		}
	}
	t.Log(table.String())
}

func row(fault string, program proc.Program, all []figures, died int) string {
	times := func(of func(figures) time.Duration) string {
		var list []time.Duration
		none := 0
		for _, f := range all {
			if d := of(f); d > 0 {
				list = append(list, d)
			} else {
				none++
			}
		}
		if len(list) == 0 {
			return "none"
		}
		slices.Sort(list)
		s := fmt.Sprintf("%.2f s (%.2f to %.2f)", list[len(list)/2].Seconds(), list[0].Seconds(),
			list[len(list)-1].Seconds())
		if none > 0 {
			s += fmt.Sprintf(", none in %d", none)
		}
		return s
	}
	var sum figures
	for _, f := range all {
		sum.changes += f.changes
		sum.asked += f.asked
		sum.lost += f.lost
		sum.ended += f.ended
		sum.leftEnded += f.leftEnded
		sum.late = max(sum.late, f.late)
	}
	return fmt.Sprintf("| %s | %s | %s | %d | %s | %s | %d of %d | %d of %d | %d of %d | %.1f s | %d |\n", fault, program,
		times(func(f figures) time.Duration { return f.newLeader }), sum.changes,
		times(func(f figures) time.Duration { return f.outage }),
		times(func(f figures) time.Duration { return f.keepAliveOutage }), sum.lost, sum.asked,
		sum.ended, kept*len(all), sum.leftEnded, left*len(all),
		sum.late.Seconds(), died)
}
