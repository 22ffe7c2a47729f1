// Simulate lets clusters of the real code live through faults in a simulated world, and checks what
// their clients saw. It builds the program of the processes, so it runs in the module vigil/sim.
// Its help shows how it is used.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"vigil/sim/scenario"
	"vigil/sim/world"
)

const usage = `Simulate lets clusters of the real code live through faults in a simulated world, and checks what their clients saw.

  simulate -hours 1 -log FILE     fresh seeds for an hour, and a line for the run in a file
  simulate -seed 12 -seeds 20     twenty seeds
  simulate -seed 12@1a2b3c4d      one seed again, with the version of the code that printed it
  simulate -seed 12 -trace -      with what happens
  simulate -seed 12 -replays 100  the hashes of all replays must be equal
  simulate -seed 12 -shrink       if it fails: a plan with as few faults and clients as possible, in a file
  simulate -plan FILE             a plan of a file
  simulate -corpus DIR            all plans of a directory, which once found mistakes
  simulate -planted NAME,NAME     look for planted mistakes, with the plans of -corpus DIR or with seeds

It ends with 0 if all is well, 1 after a violation, 2 if it was called wrongly or cannot run.

`

// options are those of the command line.
type options struct {
	guest, planted, format, seed, plan, corpus, trace, log string
	profile, cpuProfile                                    string
	seeds                                                  uint64
	hours, minutes                                         float64
	parallel, replays                                      int
	shrink, keepGoing                                      bool

	control *control // while planted mistakes are looked for
}

// errViolated means that violations were printed.
var errViolated = errors.New("there are violations")

func main() {
	debug.SetGCPercent(400) // the compiled program is a large heap that does not change
	var o options
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.StringVar(&o.seed, "seed", "1",
		"the first seed, with @ and the version of the code if it must be that one")
	flag.Uint64Var(&o.seeds, "seeds", 1, "the number of seeds")
	flag.Float64Var(&o.hours, "hours", 0, "take fresh seeds for so many hours of real time")
	flag.Float64Var(&o.minutes, "minutes", 0,
		"the minutes of simulated time in which faults begin, for seeds; 0 for what is usual for the profile")
	flag.StringVar(&o.profile, "profile", "", "how plans are drawn from seeds; default: "+
		scenario.Mixed+", and for planted mistakes that of each. There are\n"+scenario.Profiles())
	flag.BoolVar(&o.keepGoing, "keep-going", false, "continue with other seeds after a violation")
	flag.StringVar(&o.log, "log", "", "append a line for the whole run to a file")
	flag.IntVar(&o.parallel, "parallel", 2, "the number of seeds at a time")
	flag.IntVar(&o.replays, "replays", 1, "run each seed so often, and compare the hashes")
	flag.BoolVar(&o.shrink, "shrink", false,
		"leave out faults, clients and work of a failing plan as long as it fails, and write the rest to a file")
	flag.StringVar(&o.plan, "plan", "", "the file of a plan, instead of seeds")
	flag.StringVar(&o.corpus, "corpus", "", "a directory with files of plans, instead of seeds")
	flag.StringVar(&o.trace, "trace", "",
		"write what happens to a file, - is the standard output; for one seed")
	flag.StringVar(&o.guest, "guest", "",
		"the program of the processes, with -planted the one with all mistakes; default: build it")
	flag.StringVar(&o.planted, "planted", "",
		"plant a mistake in the members and clients, by its name in package planted, or several by comma; all tries each of them")
	flag.StringVar(&o.format, "format", "text",
		"the format of the table of planted mistakes: text, md or json")
	flag.StringVar(&o.cpuProfile, "cpuprofile", "",
		"write a profile of the processor's time to a file")
	flag.Parse()
	err := o.run(flag.Args())
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "simulate:", err)
	if errors.Is(err, errViolated) {
		os.Exit(1)
	}
	os.Exit(2)
}

// check reports everything that is wrong with the options, and returns the parts of the seed.
func (o *options) check(rest []string) (first uint64, version string, err error) {
	var errs []error
	bad := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	number, version, at := strings.Cut(o.seed, "@")
	first, err = strconv.ParseUint(number, 10, 64)
	bad(err != nil || at && version == "", "-seed %q is not a number, or a number@version", o.seed)
	bad(err == nil && first > math.MaxUint64-o.seeds,
		"-seed %d: there are no %d seeds from it on, the last one is %d", first, o.seeds,
		uint64(math.MaxUint64-1))
	bad(len(rest) > 0, "%q is not expected, only options are", rest)
	bad(o.seeds == 0 || o.parallel < 1 || o.replays < 1,
		"-seeds, -parallel and -replays must be at least 1")
	bad(!(o.hours >= 0), "-hours must not be negative")
	bad(!(o.minutes >= 0 && o.minutes <= 24*60), "-minutes must be at least 0, and at most a day")
	files := o.plan != "" || o.corpus != ""
	bad(o.minutes != 0 && (files || o.planted != ""), "-minutes is for seeds")
	bad(o.profile != "" && files, "-profile is for seeds")
	if _, e := scenario.ProfilePlan(o.profile, 0, 0); e != nil {
		errs = append(errs, fmt.Errorf("-profile: %w", e))
	}
	sources := 0
	for _, given := range []bool{o.plan != "", o.corpus != "" && o.planted == "", o.hours > 0} {
		if given {
			sources++
		}
	}
	bad(sources > 1, "only one of -plan, -corpus and -hours can be given")
	bad((sources > 0 || o.planted != "") && version != "",
		"-seed %s has no use with -plan, -corpus, -hours or -planted", o.seed)
	bad(o.planted != "" && (o.log != "" || o.replays > 1), "-log and -replays are not for -planted")
	bad(o.planted != "" && (o.plan != "" || o.hours > 0), "-planted takes seeds or -corpus")
	bad(o.trace != "" && (o.seeds > 1 || o.hours > 0 || o.corpus != ""),
		"-trace is for one seed or plan")
	bad(o.trace != "" && o.trace == o.log, "-trace and -log are one file")
	for _, f := range []struct{ name, file string }{{"-log", o.log}, {"-trace", o.trace}} {
		if f.file == "-" {
			continue // the standard output
		}
		if err := writable(f.file); err != nil {
			errs = append(errs, fmt.Errorf("%s cannot be written: %w", f.name, err))
		}
	}
	bad(o.format != "text" && o.format != "md" && o.format != "json",
		"-format %q is not text, md or json", o.format)
	return first, version, errors.Join(errs...)
}

// writable returns why a file, if there is a name, cannot be written. Nothing is lost of one that
// exists. A run of hours must not end with that.
func writable(file string) error {
	if file == "" {
		return nil
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// checkVersion rejects a seed of another version of the code, for which it has no meaning.
func (o *options) checkVersion(want, is string) error {
	if want == "" || want == is {
		return nil
	}
	return fmt.Errorf("seed %s is not run: it belongs to version %s of the code, this is %s; check out the commit that printed it", o.seed, want, is)
}

func (o *options) run(rest []string) error {
	first, version, err := o.check(rest)
	if err != nil {
		return err
	}
	if o.planted != "" {
		return o.findPlanted(first)
	}
	g, err := loadGuest(context.Background(), o.guest, nil)
	if err != nil {
		return err
	}
	if err := o.checkVersion(version, g.Version); err != nil {
		return err
	}
	if o.cpuProfile != "" {
		f, err := os.Create(o.cpuProfile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	jobs, err := o.jobs(g, first)
	if err != nil {
		return err
	}
	return o.runAll(g, jobs)
}

// job is a plan to run.
type job struct {
	name string // for the person, with the version of the code
	plan scenario.Plan
	// again are the options that run it again.
	again   string
	mistake string // the planted one, if any
}

// jobs returns a function that gives the plans to run one after the other, and false after the last
// one.
func (o *options) jobs(g *world.Guest, first uint64) (func() (job, bool), error) {
	if o.plan != "" || o.corpus != "" {
		return o.files(g)
	}
	last, end := first+o.seeds, time.Time{}
	if o.hours > 0 {
		began := time.Now()
		first, last, end = uint64(began.UnixNano()), 1<<64-1,
			began.Add(time.Duration(o.hours*float64(time.Hour)))
	}
	faulty := time.Duration(o.minutes * float64(time.Minute))
	drawn := "" // how, as options
	if o.profile != "" {
		drawn += " -profile " + o.profile
	}
	if o.minutes != 0 {
		drawn += fmt.Sprintf(" -minutes %v", o.minutes)
	}
	return func() (job, bool) {
		if first >= last || !end.IsZero() && time.Now().After(end) {
			return job{}, false
		}
		p, err := scenario.ProfilePlan(o.profile, first, faulty)
		if err != nil {
			return job{}, false // check has found it
		}
		j := job{name: fmt.Sprintf("seed %d@%s%s", first, g.Version, drawn), plan: p,
			again: fmt.Sprintf("-seed %d@%s%s", first, g.Version, drawn)}
		first++
		return j, true
	}, nil
}
