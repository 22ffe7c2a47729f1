package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"vigil/sim/scenario"
	"vigil/sim/world"
)

// progressInterval is how often a long run reports how far it is.
const progressInterval = time.Minute

// tally counts what became of plans.
type tally struct {
	mu        sync.Mutex
	began     time.Time
	spent     time.Duration // processor time before
	done      int
	failed    int
	simulated time.Duration
	kinds     kinds
}

// add counts a plan.
func (t *tally) add(failure *failure, simulated time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.done++
	t.simulated += simulated
	if failure != nil {
		t.failed++
		t.kinds.add(failure)
	}
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	took := time.Since(t.began)
	spent := processorTime() - t.spent
	return fmt.Sprintf("%d plans, %.2f cluster-hours in %v (%.1fx) and %v of processor time (%.1fx), %d failed", t.done, t.simulated.Hours(), took.Round(time.Second), t.simulated.Seconds()/took.Seconds(),
		spent.Round(time.Second), t.simulated.Seconds()/spent.Seconds(), t.failed)
}

// processorTime is what this process has used so far, which does not depend on what else the
// machine does.
func processorTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (t *tally) stop(keepGoing bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed > 0 && !keepGoing
}

// runAll runs plans, several at a time, until there is no other or one fails. After an interrupt it
// takes no other plan, so that a long run can be ended and is in the log; the second interrupt ends
// the process.
func (o *options) runAll(g *world.Guest, next func() (job, bool)) error {
	t := &tally{began: time.Now(), spent: processorTime()}
	interrupted, restore := signal.NotifyContext(context.Background(), os.Interrupt,
		syscall.SIGTERM)
	defer context.AfterFunc(interrupted, restore)() // the next interrupt ends the process
	defer restore()
	var taking sync.Mutex
	take := func() (job, bool) {
		taking.Lock()
		defer taking.Unlock()
		if t.stop(o.keepGoing) || interrupted.Err() != nil {
			return job{}, false
		}
		return next()
	}
	var workers sync.WaitGroup
	for range o.parallel {
		workers.Go(func() {
			for j, ok := take(); ok; j, ok = take() {
				t.add(o.runJob(g, j))
			}
		})
	}
	over, reported := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(reported)
		tick := time.NewTicker(progressInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				fmt.Printf("%s so far: %v\n", time.Now().UTC().Format(time.TimeOnly), t)
			case <-over:
				return
			}
		}
	}()
	workers.Wait()
	close(over)
	<-reported
	fmt.Println(t)
	fmt.Print(t.kinds.String())
	if o.log != "" {
		if err := o.appendLog(g, t); err != nil {
			return err
		}
	}
	if t.failed > 0 {
		return fmt.Errorf("%d of %d plans failed: %w", t.failed, t.done, errViolated)
	}
	return nil
}

// logged is a run in the log.
var logged = regexp.MustCompile(`(?m): ([0-9]+) plans, ([0-9.]+) cluster-hours in .*, ([0-9]+) failed`)

// sumLog returns what all runs in the log are together.
func sumLog(text string) string {
	plans, failed, hours := 0, 0, 0.0
	for _, s := range logged.FindAllStringSubmatch(text, -1) {
		p, _ := strconv.Atoi(s[1])
		h, _ := strconv.ParseFloat(s[2], 64)
		f, _ := strconv.Atoi(s[3])
		plans, failed, hours = plans+p, failed+f, hours+h
	}
	return fmt.Sprintf("%d plans, %.2f cluster-hours, %d failed", plans, hours, failed)
}

// appendLog adds a line for the run to a file, and prints the sum of all runs in it.
func (o *options) appendLog(g *world.Guest, t *tally) error {
	f, err := os.OpenFile(o.log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s version %s: %v", t.began.UTC().Format(time.RFC3339), g.Version, t)
	if t.failed > 0 {
		line += ": " + strings.ReplaceAll(strings.TrimSpace(t.kinds.String()), "\n", "; ")
	}
	if _, err = fmt.Fprintln(f, line); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	all, err := os.ReadFile(o.log)
	if err == nil {
		fmt.Printf("all runs in %s: %s\n", o.log, sumLog(string(all)))
	}
	return err
}

// openTrace opens the trace of a run, nil if there is none. The caller calls done after the run.
func (o *options) openTrace() (out io.Writer, done func(), err error) {
	switch o.trace {
	case "":
		return nil, func() {}, nil
	case "-":
		return os.Stdout, func() {}, nil
	}
	f, err := os.Create(o.trace)
	return f, func() { f.Close() }, err
}

// runJob runs a plan as often as -replays says, and prints its result. It returns a failure if
// there is one.
func (o *options) runJob(g *world.Guest, j job) (fail *failure, simulated time.Duration) {
	out, closeTrace, err := o.openTrace()
	if err != nil {
		return &failure{job: j, kind: "the trace cannot be written", text: err.Error()}, 0
	}
	defer closeTrace()
	hash := ""
	for n := range o.replays {
		began := time.Now()
		r := scenario.Run(g, j.plan, out)
		took := time.Since(began)
		simulated += r.Simulated
		if o.hours == 0 {
			fmt.Printf("%s: %v in %v (%.1fx), %d members, %d faults, %d operations, %d acknowledged, %d revisions, %d events, hash %s\n",
				j.name, r.Simulated.Round(time.Millisecond), took.Round(time.Millisecond),
				r.Simulated.Seconds()/took.Seconds(),
				j.plan.Members, len(j.plan.Faults), r.Ops, r.Acked, r.Revisions, r.Events, r.Hash)
		}
		if n > 0 && r.Hash != hash {
			fmt.Printf("%s: replay %d has the hash %s, not %s\n", j.name, n+1, r.Hash, hash)
			j.again += fmt.Sprintf(" -replays %d", o.replays)
			return &failure{job: j, kind: "the hash of a replay differs"}, simulated
		}
		hash = r.Hash
		// The other replays of a failing seed must be equal to it too.
		if len(r.Violations) > 0 && fail == nil {
			fail = newFailure(j, r)
			fmt.Print(fail.String())
		}
	}
	if fail != nil && o.shrink {
		shrink(g, fail)
	}
	return fail, simulated
}
