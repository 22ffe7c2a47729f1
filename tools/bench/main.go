// Command bench runs Vigil and a stock etcd side by side and compares them. It builds both, runs
// each scenario in rounds that alternate between the systems, checks every answer, and prints a
// table; README.md explains it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"syscall"
	"time"

	"vigil/tools/bench/suite"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return
		}
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the command line.
type settings struct {
	Scenarios  string        `json:"scenarios"`
	A          string        `json:"a"`
	B          string        `json:"b"`
	Control    string        `json:"control"`
	Rounds     int           `json:"rounds"`
	Duration   time.Duration `json:"duration"`
	Warmup     time.Duration `json:"warmup"`
	Scale      float64       `json:"scale"`
	ValueSize  int           `json:"value_size"`
	Tmpfs      bool          `json:"tmpfs"`
	Dir        string        `json:"dir"`
	ServerCPUs string        `json:"server_cpus"`
	ClientCPUs string        `json:"client_cpus"`
	ArgsA      string        `json:"args_a"`
	ArgsB      string        `json:"args_b"`
	Timeout    time.Duration `json:"timeout"`

	out, chart, profile, ownProfile string
	list                            bool
}

func parse(args []string) (*settings, []suite.Scenario, error) {
	var s settings
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&s.Scenarios, "scenario", "put-pipelined,get-linearizable",
		"scenarios, separated by commas; patterns such as watch-* and all are understood")
	fs.BoolVar(&s.list, "list", false, "list the scenarios and end")
	fs.StringVar(&s.A, "a", "vigil", "first system: vigil, etcd, vigil=PATH or etcd=PATH")
	fs.StringVar(&s.B, "b", "etcd", "second system, or none")
	fs.StringVar(&s.Control, "control", "b", "which system runs twice in each round: a, b or none")
	fs.IntVar(&s.Rounds, "rounds", 5, "rounds")
	fs.DurationVar(&s.Duration, "duration", 5*time.Second, "length of a measured part")
	fs.DurationVar(&s.Warmup, "warmup", 2*time.Second, "time before it")
	fs.Float64Var(&s.Scale, "scale", 0.1, "size of the large data sets, 1 is full size")
	fs.IntVar(&s.ValueSize, "value-size", 256, "bytes in a value where the scenario does not say")
	fs.BoolVar(&s.Tmpfs, "tmpfs", false,
		"keep the data in /dev/shm, so that no disk is in the figures")
	fs.StringVar(&s.Dir, "dir", "",
		"folder on the file system to use for data; default is the system's temporary one")
	fs.StringVar(&s.ServerCPUs, "server-cpus", "",
		"processors of the servers, such as 0-1; default all")
	fs.StringVar(&s.ClientCPUs, "client-cpus", "",
		"processors of the load generator, such as 2-3; default all")
	fs.StringVar(&s.ArgsA, "args-a", "", "further flags of the first system, separated by blanks")
	fs.StringVar(&s.ArgsB, "args-b", "", "further flags of the second")
	fs.DurationVar(&s.Timeout, "timeout", 15*time.Minute, "longest time for one run of a scenario")
	fs.StringVar(&s.out, "out", "", "file for the JSON report")
	fs.StringVar(&s.chart, "chart", "", "folder for SVG charts of the scenarios cost-by-*")
	fs.StringVar(&s.profile, "profile", "",
		"folder for CPU profiles: one more run of each system and scenario, which counts for nothing else")
	fs.StringVar(&s.ownProfile, "own-profile", "",
		"file for a CPU profile of the load generator itself")
	if err := fs.Parse(args); err != nil {
		return nil, nil, err
	}
	var wrong []error
	bad := func(format string, a ...any) { wrong = append(wrong, fmt.Errorf(format, a...)) }
	if fs.NArg() > 0 {
		bad("unexpected %q", fs.Args())
	}
	if s.Rounds < 1 {
		bad("-rounds is %d, want at least 1", s.Rounds)
	}
	if s.Duration < 100*time.Millisecond || s.Warmup < 0 {
		bad("-duration is %v and -warmup %v, want at least 100ms and 0", s.Duration, s.Warmup)
	}
	if s.Scale <= 0 {
		bad("-scale is %v, want more than 0", s.Scale)
	}
	if s.ValueSize < 8 || s.ValueSize > 1<<20 {
		bad("-value-size is %d, want 8 to 1048576", s.ValueSize)
	}
	if !slices.Contains([]string{"a", "b", "none"}, s.Control) {
		bad("-control is %q, want a, b or none", s.Control)
	}
	if s.B == "none" && s.Control == "b" {
		s.Control = "none"
	}
	if s.Tmpfs && s.Dir != "" {
		bad("-tmpfs and -dir exclude each other")
	}
	etcd := slices.ContainsFunc([]string{s.A, s.B},
		func(system string) bool { return strings.HasPrefix(system, "etcd") })
	chosen, err := choose(s.Scenarios, etcd)
	if err != nil {
		wrong = append(wrong, err)
	}
	return &s, chosen, errors.Join(wrong...)
}

// choose picks the scenarios that match a list of names and patterns, in their own order. With
// etcd, a pattern leaves out those that only Vigil has, and their names are refused.
func choose(list string, etcd bool) ([]suite.Scenario, error) {
	all := suite.All()
	want := make([]bool, len(all))
	for pattern := range strings.SplitSeq(list, ",") {
		if pattern == "all" {
			pattern = "*"
		}
		found := false
		for i, s := range all {
			ok, err := path.Match(pattern, s.Name)
			if err != nil {
				return nil, fmt.Errorf("-scenario %q: %w", pattern, err)
			}
			switch {
			case !ok:
			case etcd && s.VigilOnly && pattern == s.Name:
				return nil, fmt.Errorf("-scenario %q: etcd has nothing to compare: use -b none, or another build of Vigil", pattern)
			default:
				want[i], found = want[i] || !etcd || !s.VigilOnly, true
			}
		}
		if !found {
			return nil, fmt.Errorf("-scenario %q matches none; -list shows them", pattern)
		}
	}
	var out []suite.Scenario
	for i, s := range all {
		if want[i] {
			out = append(out, s)
		}
	}
	return out, nil
}

func run(ctx context.Context, args []string) error {
	if runtime.GOOS != "linux" {
		return errors.New("the figures come from /proc, so this needs Linux")
	}
	s, chosen, err := parse(args)
	if err != nil {
		return err
	}
	if s.list {
		for _, sc := range suite.All() {
			fmt.Printf("%-22s %s\n", sc.Name, sc.About)
		}
		return nil
	}
	c, err := prepare(ctx, s)
	if err != nil {
		return err
	}
	defer c.close()
	if s.ownProfile != "" {
		f, err := os.Create(s.ownProfile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return c.compareScenarios(ctx, chosen)
}
