// Package loadtest has the commands that write a load to a cluster: check perf and check datascale.
package loadtest

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/progress"
)

const checkPerfHelp = `Write to the cluster for a minute, at the rate of a load, and print whether it is fast enough: more than
90% of the rate, no write slower than 0.5 s, a standard deviation of at most 0.1 s.

  load    s     m      l      xl
  writes  150   1000   8000   15000 a second
  by      50    200    500    1000 clients

The keys are deleted afterwards. Exit codes: 0 passed, 1 failed.`

// Perf returns the command check perf.
func Perf(env *cli.Env) *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:     "perf [options]",
		Short:   "Test whether the cluster is fast enough for a load",
		Long:    checkPerfHelp,
		Example: "  vigilctl check perf --load m --auto-compact",
		RunE: func(c *cobra.Command, _ []string) error {
			work, err := f.workload(perfLoads)
			if err != nil {
				return err
			}
			return checkPerf(c.Context(), env, f, work)
		},
	}
	f.addFlags(c, "/etcdctl-check-perf/")
	return c
}

func checkPerf(ctx context.Context, env *cli.Env, f loadFlags, work workload) error {
	l, err := newLoader(ctx, env, f, work)
	if err != nil {
		return err
	}
	defer l.close()
	bar := progress.NewItems(env.Stderr, "checking", "s", int64(work.duration/time.Second))
	began := time.Now()
	o := l.writeLoad(ctx, func() { bar.Set(int64(time.Since(began) / time.Second)) })
	bar.End()
	uncleaned := l.deleteKeys(ctx, env.Stdout)
	if uncleaned != nil {
		fmt.Fprintf(env.Stdout, "FAIL: Cleanup failed during key deletion: ERROR(%v)\n", uncleaned)
	}
	switch {
	case ctx.Err() != nil && uncleaned != nil:
		return exit.With(exit.Interrupted,
			fmt.Errorf("interrupted; keys with the prefix %q may remain", f.prefix))
	case ctx.Err() != nil:
		return errInterrupted
	}
	if ok := o.verdict(env.Stdout, work.rate); !ok || uncleaned != nil {
		fmt.Fprintln(env.Stdout, "FAIL")
		return exit.Silent(exit.Failure)
	}
	fmt.Fprintln(env.Stdout, "PASS")
	return nil
}

// verdict prints the results of a load at a rate, and reports whether they pass.
func (o *outcome) verdict(out io.Writer, rate int) bool {
	o.printFailures(out)
	ok := len(o.failures) == 0
	judge := func(good bool, pass, fail string, value any) {
		if text := pass; good {
			fmt.Fprintf(out, "PASS: "+text+"\n", value)
		} else {
			fmt.Fprintf(out, fail+"\n", value)
		}
		ok = ok && good
	}
	judge(o.rate()/float64(rate) > 0.9, "Throughput is %d writes/s",
		"FAIL: Throughput too low: %d writes/s", int(o.rate())+1)
	judge(o.slowest() <= 0.5, "Slowest request took %fs",
		"Slowest request took too long: %fs", o.slowest())
	judge(o.deviation() <= 0.1, "Stddev is %fs", "Stddev too high: %fs", o.deviation())
	return ok
}

const checkScaleHelp = `Write the keys of a load as fast as possible, and print how much more memory the member at the first
of --endpoints uses then.

  load  s       m        l          xl
  keys  10,000  100,000  1,000,000  3,000,000 of 1 KiB

The keys are deleted afterwards. The member must serve /metrics to this machine.`

// DataScale returns the command check datascale.
func DataScale(env *cli.Env) *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:     "datascale [options]",
		Short:   "Measure how much memory a load takes",
		Long:    checkScaleHelp,
		Example: "  vigilctl check datascale --load m --auto-compact --auto-defrag",
		RunE: func(c *cobra.Command, _ []string) error {
			work, err := f.workload(scaleLoads)
			if err != nil {
				return err
			}
			return checkScale(c.Context(), env, f, work)
		},
	}
	f.addFlags(c, "/etcdctl-check-datascale/")
	return c
}

func checkScale(ctx context.Context, env *cli.Env, f loadFlags, work workload) error {
	l, err := newLoader(ctx, env, f, work)
	if err != nil {
		return err
	}
	defer l.close()
	before, err := residentMemory(ctx, &env.Config)
	if err != nil {
		fmt.Fprintln(env.Stdout,
			"FAIL: Could not read process_resident_memory_bytes before the put operations.")
		return exit.With(exit.Failure, err)
	}
	fmt.Fprintf(env.Stdout,
		"Start data scale check for work load [%d key-value pairs, %d bytes per key-value, %d concurrent clients].\n",
		work.keys, work.keyBytes+work.valueBytes, work.clients)
	bar := progress.NewItems(env.Stderr, "writing", "keys", int64(work.keys))
	var done int64
	o := l.writeLoad(ctx, func() { done++; bar.Set(done) })
	bar.End()
	after, err := residentMemory(context.WithoutCancel(ctx), &env.Config)
	if cerr := l.deleteKeys(ctx, env.Stdout); cerr != nil {
		return cerr
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		fmt.Fprintln(env.Stdout,
			"FAIL: Could not read process_resident_memory_bytes after the put operations.")
		return exit.With(exit.Failure, err)
	case len(o.failures) > 0:
		o.printFailures(env.Stdout)
		return exit.Silent(exit.Failure)
	}
	fmt.Fprintf(env.Stdout, "PASS: Approximate system memory used : %.2f MB.\n",
		(after-before)/(1<<20))
	return nil
}

// metricsTimeout limits reading a member's metrics.
const metricsTimeout = 10 * time.Second

// residentMemory returns the resident memory in bytes of the member at the first endpoint, from its
// metrics.
func residentMemory(ctx context.Context, cfg *client.Config) (float64, error) {
	secure, err := cfg.SecureHTTP()
	if err != nil {
		return 0, err
	}
	m := probe.New(cfg.Endpoints[0], "", secure, metricsTimeout)
	defer m.Close()
	metrics, err := m.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	const name = "process_resident_memory_bytes"
	v, ok := metrics.Value(name)
	if !ok {
		err = fmt.Errorf("the metrics of %s have no %s", m.Endpoint, name)
	}
	return v, err
}
