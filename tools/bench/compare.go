package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"vigil/tools/bench/report"
	"vigil/tools/bench/suite"
	"vigil/tools/bench/target"
)

// comparison runs scenarios on two systems in turns.
type comparison struct {
	*settings
	launcher *target.Launcher
	dir      string // on the file system for data; removed at the end
	systems  []*system
	controls int // the system that the third one repeats
	report   *report.Report
}

// system is a build with its flags.
type system struct {
	*target.Build
	args  []string
	cache string
}

func prepare(ctx context.Context, s *settings) (_ *comparison, err error) {
	if err := target.Restrict(s.ClientCPUs); err != nil {
		return nil, err
	}
	c := &comparison{settings: s}
	if c.launcher, err = target.NewLauncher(s.ServerCPUs); err != nil {
		return nil, err
	}
	parent := s.Dir
	if s.Tmpfs {
		parent = "/dev/shm"
	}
	if c.dir, err = os.MkdirTemp(parent, "vigil-bench-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	cwd, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	module, err := target.Find(cwd)
	if err != nil {
		return nil, err
	}
	c.note("building")
	for i, spec := range []string{s.A, s.B} {
		if spec == "none" && i == 1 {
			continue
		}
		bin := filepath.Join(c.dir, fmt.Sprint("bin-", i))
		if err := os.Mkdir(bin, 0o700); err != nil {
			return nil, err
		}
		b, err := target.Make(ctx, module, spec, bin)
		if err != nil {
			return nil, err
		}
		y := &system{Build: b, args: strings.Fields([]string{s.ArgsA, s.ArgsB}[i]),
			cache: filepath.Join(c.dir, fmt.Sprint("cache-", i))}
		if err := os.Mkdir(y.cache, 0o700); err != nil {
			return nil, err
		}
		c.systems = append(c.systems, y)
	}
	if s.Control != "none" {
		c.controls = int(s.Control[0] - 'a')
		again := *c.systems[c.controls]
		build := *again.Build
		build.Name += " again (control)"
		again.Build = &build
		c.systems = append(c.systems, &again)
	}
	if len(c.systems) == 2 && s.B == "none" {
		c.controls = 0
	}
	c.report = &report.Report{Began: time.Now(), Machine: report.ThisMachine(c.dir), Settings: s}
	for _, y := range c.systems {
		c.report.Systems = append(c.report.Systems,
			report.System{Name: y.Name, Version: y.Version, Args: y.args})
	}
	return c, nil
}

func (c *comparison) close() {
	if err := os.RemoveAll(c.dir); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
	}
}

func (c *comparison) note(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// compareScenarios runs everything, writes the report as far as it goes, and fails if any scenario
// did.
func (c *comparison) compareScenarios(ctx context.Context, chosen []suite.Scenario) error {
	var failed []error
	for _, sc := range chosen {
		rs := &report.Scenario{Name: sc.Name, About: sc.About, Axis: sc.Axis}
		c.report.Scenarios = append(c.report.Scenarios, rs)
		if err := c.runRounds(ctx, sc, rs); err != nil {
			rs.Error = err.Error()
			failed = append(failed, fmt.Errorf("%s: %w", sc.Name, err))
			c.note("%s FAILED: %v", sc.Name, err)
		}
		if ctx.Err() != nil {
			break
		}
	}
	c.report.Took = time.Since(c.report.Began).Seconds()
	if err := c.report.Table(os.Stdout); err != nil {
		return err
	}
	if c.out != "" {
		f, err := os.Create(c.out)
		if err != nil {
			return err
		}
		if err := errors.Join(c.report.JSON(f), f.Close()); err != nil {
			return err
		}
	}
	if err := c.writeCharts(); err != nil {
		return err
	}
	if len(failed) > 0 {
		return fmt.Errorf("%d of %d scenarios failed", len(failed), len(chosen))
	}
	return nil
}

// writeCharts draws the scenarios that have an axis.
func (c *comparison) writeCharts() error {
	if c.chart == "" {
		return nil
	}
	if err := os.MkdirAll(c.chart, 0o755); err != nil {
		return err
	}
	for _, s := range c.report.Scenarios {
		drawn := s.Chart(c.report.Systems)
		if drawn == nil {
			continue
		}
		var b bytes.Buffer
		if err := drawn.SVG(&b); err != nil {
			return fmt.Errorf("chart of %s: %w", s.Name, err)
		}
		if err := os.WriteFile(filepath.Join(c.chart, s.Name+".svg"), b.Bytes(),
			0o644); err != nil {
			return err
		}
	}
	return nil
}

// runRounds runs one scenario. Each round begins with the next system, so that none is always
// first.
func (c *comparison) runRounds(ctx context.Context, sc suite.Scenario, rs *report.Scenario) error {
	n := len(c.systems)
	for round := range c.Rounds {
		figures := make([][]suite.Figure, n)
		for i := range n {
			which := (round + i) % n
			f, err := c.runOnce(ctx, sc, which, "")
			if err != nil {
				return fmt.Errorf("%s, round %d: %w", c.systems[which].Name, round+1, err)
			}
			figures[which] = f
			c.note("%s round %d of %d: %s: %s", sc.Name, round+1, c.Rounds,
				c.systems[which].Name, headline(f))
		}
		if err := rs.Add(figures, c.controls); err != nil {
			return err
		}
	}
	if c.profile == "" {
		return nil
	}
	if err := os.MkdirAll(c.profile, 0o755); err != nil {
		return err
	}
	for i := range c.systems {
		if i == 2 || i == 1 && c.B == "none" {
			continue // the control is the same program
		}
		to := filepath.Join(c.profile,
			fmt.Sprintf("%s-%s.pprof", sc.Name, filepath.Base(c.systems[i].Name)))
		if _, err := c.runOnce(ctx, sc, i, to); err != nil {
			return fmt.Errorf("%s, profile: %w", c.systems[i].Name, err)
		}
		if err := top(ctx, c.systems[i].Path, to); err != nil {
			return err
		}
		c.note("%s: CPU profile of %s in %s, its top in %s.txt", sc.Name, c.systems[i].Name, to, to)
	}
	return nil
}

// headline is the first figures of a run, to see how it goes.
func headline(fs []suite.Figure) string {
	var parts []string
	for _, f := range fs[:min(3, len(fs))] {
		parts = append(parts, fmt.Sprintf("%s %.4g %s", f.Name, f.Value, f.Unit))
	}
	return strings.Join(parts, ", ")
}

// runOnce runs a scenario once on one system, with a profile into a file if one is given.
func (c *comparison) runOnce(ctx context.Context, sc suite.Scenario, which int,
	profile string) (_ []suite.Figure, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	y := c.systems[which]
	dir, err := os.MkdirTemp(c.dir, "run-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	e := &suite.Env{
		Launcher: c.launcher, Build: y.Build, Dir: dir, Cache: y.cache, ProfileTo: profile,
		Args: y.args, Note: c.note,
		Params: suite.Params{Warmup: c.Warmup, Duration: c.Duration, Scale: c.Scale,
			ValueSize: c.ValueSize, Pause: 50 * time.Millisecond},
	}
	f, err := sc.Run(ctx, e)
	if cerr := e.Close(); err == nil {
		err = cerr
	}
	return f, err
}

// top writes the functions with the most time, next to a profile.
func top(ctx context.Context, binary, profile string) error {
	out, err := exec.CommandContext(ctx, "go", "tool", "pprof", "-top", "-nodecount=30", binary,
		profile).Output()
	if err != nil {
		return fmt.Errorf("go tool pprof: %w", err)
	}
	return os.WriteFile(profile+".txt", out, 0o644)
}
