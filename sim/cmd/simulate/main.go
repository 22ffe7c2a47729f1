// Simulate lets clusters of the real code live through faults in a simulated world, and checks what their clients saw.
//
//	simulate -hours 1               fresh seeds
//	simulate -seed 12@1a2b3c4d      one seed again, with the version of the code that printed it
//	simulate -seed 12 -trace -      with what happens
//	simulate -seed 12 -shrink       with as few faults as possible
//
// It builds the program of the processes, so it runs in the module vigil/sim.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"vigil/sim/scenario"
	"vigil/sim/world"
)

type options struct {
	guest, planted, format, seed, trace, profile string
	seeds                                        uint64
	hours                                        float64
	parallel, replays                            int
	shrink                                       bool
}

func main() {
	debug.SetGCPercent(400) // the compiled program is a large heap that does not change
	var o options
	flag.StringVar(&o.seed, "seed", "1", "the first seed, with @ and the version of the code if it must be that one")
	flag.Uint64Var(&o.seeds, "seeds", 1, "the number of seeds")
	flag.Float64Var(&o.hours, "hours", 0, "take fresh seeds for so many hours")
	flag.IntVar(&o.parallel, "parallel", 2, "the number of seeds at a time")
	flag.IntVar(&o.replays, "replays", 1, "run each seed so often, and compare the hashes")
	flag.BoolVar(&o.shrink, "shrink", false, "leave out faults of a failing seed as long as it fails")
	flag.StringVar(&o.trace, "trace", "", "write what happens to a file, - is the standard output; for one seed")
	flag.StringVar(&o.guest, "guest", "", "the program of the processes; default: build it")
	flag.StringVar(&o.planted, "planted", "", "plant a mistake in the members and clients, by its name in package planted, or several by comma; all tries each of them")
	flag.StringVar(&o.format, "format", "text", "the format of the table of planted mistakes: text, md or json")
	flag.StringVar(&o.profile, "cpuprofile", "", "write a profile of the processor's time to a file")
	flag.Parse()
	if err := o.run(); err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func (o *options) run() error {
	number, version, _ := strings.Cut(o.seed, "@")
	first, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return fmt.Errorf("-seed %q is not a number, or a number@version", o.seed)
	}
	if o.planted != "" {
		return o.findPlanted(first)
	}
	g, err := loadGuest(context.Background(), o.guest, "")
	if err != nil {
		return err
	}
	if version != "" && version != g.Version {
		return fmt.Errorf("seed %s belongs to version %s of the code, this is %s: check out the commit that printed it", number, version, g.Version)
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	last := first + o.seeds
	if o.hours > 0 {
		first, last = uint64(time.Now().UnixNano()), 1<<63
	}
	return o.runAll(g, first, last)
}

// runAll runs the seeds from first to last, several at a time.
func (o *options) runAll(g *world.Guest, first, last uint64) error {
	var next atomic.Uint64
	next.Store(first)
	var failed, done atomic.Int64
	var simulated atomic.Int64
	began := time.Now()
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() {
			for failed.Load() == 0 {
				seed := next.Add(1) - 1
				if seed >= last || o.hours > 0 && time.Since(began).Hours() > o.hours {
					return
				}
				ok, d := o.runSeed(g, seed)
				done.Add(1)
				simulated.Add(int64(d))
				if !ok {
					failed.Add(1)
				}
			}
		})
	}
	workers.Wait()
	total, took := time.Duration(simulated.Load()), time.Since(began)
	fmt.Printf("%d seeds, %v simulated in %v (%.1fx), %d failed\n", done.Load(), total.Round(time.Second), took.Round(time.Second), total.Seconds()/took.Seconds(), failed.Load())
	if failed.Load() > 0 {
		return fmt.Errorf("%d seeds failed", failed.Load())
	}
	return nil
}

// runSeed runs a seed, and prints its result.
func (o *options) runSeed(g *world.Guest, seed uint64) (ok bool, simulated time.Duration) {
	var out io.Writer
	if o.trace == "-" {
		out = os.Stdout
	} else if o.trace != "" {
		f, err := os.Create(o.trace)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return false, 0
		}
		defer f.Close()
		out = f
	}
	p := scenario.NewPlan(seed)
	hash := ""
	for n := range o.replays {
		began := time.Now()
		r := scenario.Run(g, p, out)
		took := time.Since(began)
		simulated += r.Simulated
		fmt.Printf("seed %d@%s: %v in %v (%.1fx), %d members, %d faults, %d operations, %d acknowledged, %d revisions, %d events, hash %s\n",
			seed, g.Version, r.Simulated.Round(time.Millisecond), took.Round(time.Millisecond), r.Simulated.Seconds()/took.Seconds(),
			p.Members, len(p.Faults), r.Ops, r.Acked, r.Revisions, r.Events, r.Hash)
		if n > 0 && r.Hash != hash {
			fmt.Printf("seed %d: the hash of replay %d differs\n", seed, n+1)
			return false, simulated
		}
		hash = r.Hash
		if len(r.Violations) > 0 {
			for _, v := range r.Violations {
				fmt.Println("  ", v)
			}
			fmt.Printf("again: simulate -seed %d@%s -trace -\n", seed, g.Version)
			if o.shrink {
				shrink(g, p)
			}
			return false, simulated
		}
	}
	return true, simulated
}

// shrink makes a failing plan smaller, and prints what is left.
func shrink(g *world.Guest, p scenario.Plan) {
	p = scenario.Shrink(g, p, func(q scenario.Plan, r scenario.Result) {
		fmt.Printf("with %d faults and %d processes of clients: %d violations\n", len(q.Faults), q.Clients, len(r.Violations))
	})
	for _, f := range p.Faults {
		fmt.Println("needed:", f)
	}
}
