// Package suite holds the scenarios: each runs one kind of work against a fresh
// server and returns its figures.
//
// Invariants:
//  1. A run begins with an empty data directory or a copy of a prepared one, and with a new
//     process.
//  2. Whatever a scenario asks is checked: the content of what it reads, the revisions of what it
//     writes, the number and the order of events. A wrong answer fails the run; there is no figure
//     then.
//  3. The figures of a scenario have the same names in the same order in every run.
package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"vigil/tools/bench/grpcconn"
	"vigil/tools/bench/load"
	"vigil/tools/bench/target"
)

// Better says which way a figure is better.
type Better int

// The ways.
const (
	Neither Better = iota
	Lower
	Higher
)

// Figure is one measured number.
type Figure struct {
	Name   string
	Unit   string
	Value  float64
	Better Better
	// Auxiliary marks a figure that describes the run and not the server: the client's own cost,
	// the disk.
	Auxiliary bool
	// Line is the name of the line of the scenario's chart that the figure is a point of, and X its
	// place on the axis. Figures without a line are not in the chart.
	Line string
	X    float64
}

// Scenario is one kind of work.
type Scenario struct {
	Name  string
	About string
	// Axis is the name of the x axis of the chart of the figures that have a line.
	Axis string
	// VigilOnly: etcd has nothing to compare.
	VigilOnly bool
	Run       func(ctx context.Context, e *Env) ([]Figure, error)
}

// All lists the scenarios in the order in which they are shown.
func All() []Scenario {
	var all []Scenario
	all = append(all, kvScenarios()...)
	all = append(all, rangeScenarios()...)
	all = append(all, leaseScenarios()...)
	all = append(all, upkeepScenarios()...)
	all = append(all, memberScenarios()...)
	all = append(all, failoverScenarios()...)
	all = append(all, watchScenarios()...)
	all = append(all, memoryScenarios()...)
	all = append(all, archiveScenarios()...)
	all = append(all, costScenarios()...)
	all = append(all, clientScenarios()...)
	return append(all, isolationScenarios()...)
}

// Params are the sizes of a run.
type Params struct {
	// Warmup comes before each measured part, Duration is its length.
	Warmup, Duration time.Duration
	// Scale multiplies the large data sets; 1 is their full size.
	Scale float64
	// ValueSize is the size of values in bytes where a scenario does not say otherwise.
	ValueSize int
	// Pause is the time between two probes of the disk.
	Pause time.Duration
}

// scaled is n times the scale, at least least.
func (p Params) scaled(n, least int) int { return max(int(float64(n)*p.Scale), least) }

// Env is the environment of one run of a scenario.
type Env struct {
	Launcher *target.Launcher
	Build    *target.Build
	// Dir is this run's own folder, empty at first. Cache is shared by the runs of this build.
	Dir, Cache string
	Params     Params
	// ProfileTo is the file that a CPU profile of the measured part goes to; empty means none.
	ProfileTo string
	// Args are further flags for the server.
	Args []string
	// Note reports the progress of the run to the user.
	Note func(format string, args ...any)

	server *target.Server
	// others are further members of server's cluster.
	others []*target.Server
	conns  []load.Conns
}

// Close ends the server and closes the connections. The run's folder is the caller's to remove.
func (e *Env) Close() error {
	for _, cs := range e.conns {
		cs.Close()
	}
	e.conns = nil
	all := e.others
	if e.server != nil {
		all = append(all, e.server)
	}
	e.server, e.others = nil, nil
	var errs []error
	for _, s := range all {
		select {
		case <-s.Exited():
			errs = append(errs, fmt.Errorf("%s ended during the run:\n%s",
				s.Build.Name, s.LogTail()))
		default:
			errs = append(errs, s.Stop())
		}
	}
	return errors.Join(errs...)
}

// start starts the server on this run's data and waits until it answers. Another program may take a
// port between its choice and the server's use of it: then others are chosen.
func (e *Env) start(ctx context.Context) error {
	const attempts = 5
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	for i := 1; ; i++ {
		s, err := e.Launcher.Start(e.Build,
			target.Config{Dir: e.Dir, Profile: e.ProfileTo != "", Args: e.Args})
		if err != nil {
			return err
		}
		e.server = s
		if _, err = s.Ready(ctx); !errors.Is(err, target.ErrPortTaken) || i == attempts {
			return err
		}
		e.server = nil
		e.Note("%v; trying others", err)
	}
}

// stop ends the server and the connections in the middle of a run.
func (e *Env) stop() error {
	for _, cs := range e.conns {
		cs.Close()
	}
	e.conns = nil
	err := e.server.Stop()
	return err
}

// dial opens connections that are closed at the end of the run.
func (e *Env) dial(ctx context.Context, n int, o grpcconn.Options) (load.Conns, error) {
	cs, err := load.Dial(ctx, e.server.Addr, n, o)
	if err == nil {
		e.conns = append(e.conns, cs)
	}
	return cs, err
}

// prepareData starts the server on a copy of a data set that fill has made once for this build. The
// server that fill writes to is stopped cleanly before the copy is taken.
func (e *Env) prepareData(ctx context.Context, name string,
	fill func(ctx context.Context) error) error {
	kept := filepath.Join(e.Cache, name)
	if _, err := os.Stat(kept); os.IsNotExist(err) {
		e.Note("%s: preparing %s", e.Build.Name, name)
		own := e.Dir
		e.Dir = kept + ".making"
		defer func() { e.Dir = own }()
		if err := os.MkdirAll(e.Dir, 0o700); err != nil {
			return err
		}
		if err := e.start(ctx); err != nil {
			return err
		}
		if err := fill(ctx); err != nil {
			return err
		}
		if err := e.stop(); err != nil {
			return err
		}
		if err := os.Rename(e.Dir, kept); err != nil {
			return err
		}
		e.Dir = own
	} else if err != nil {
		return err
	}
	if err := os.CopyFS(filepath.Join(e.Dir, "data"),
		os.DirFS(filepath.Join(kept, "data"))); err != nil {
		return fmt.Errorf("copying a prepared data set: %w", err)
	}
	if err := tighten(filepath.Join(e.Dir, "data")); err != nil {
		return err
	}
	return e.start(ctx)
}

// tighten gives the folders of a copied data set the mode that servers insist on and puts the copy
// on the disk, so that writing it back does not disturb the run.
func tighten(dir string) error {
	return filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		if err := os.Chmod(path, 0o600); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	})
}
