package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/client"
)

const checkPerfHelp = `Write to the cluster for a minute, at the rate of a load, and tell whether it is fast enough: more than
nine tenths of the rate, no write above half a second, a standard deviation of at most a tenth.

  load    s     m      l      xl
  writes  150   1000   8000   15000 a second
  by      50    200    500    1000 clients

The keys are deleted afterwards. Exit codes: 0 it passed, 1 it did not.`

func (a *app) checkPerfCommand() *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:     "perf [options]",
		Short:   "Tell whether the cluster is fast enough for a load",
		Long:    checkPerfHelp,
		Example: "  vigilctl check perf --load m --auto-compact",
		RunE: func(c *cobra.Command, _ []string) error {
			work, err := f.workload(perfLoads)
			if err != nil {
				return err
			}
			return a.checkPerf(c.Context(), f, work)
		},
	}
	f.flags(c, "/etcdctl-check-perf/")
	return c
}

func (a *app) checkPerf(ctx context.Context, f loadFlags, work workload) error {
	l, err := a.newLoader(ctx, f, work)
	if err != nil {
		return err
	}
	defer l.close()
	bar := newCount(a.errOut, "checking", "s", int64(work.duration/time.Second))
	began := time.Now()
	o := l.run(ctx, func() { bar.set(int64(time.Since(began) / time.Second)) })
	bar.end()
	if err := l.clean(ctx, a.out); err != nil {
		fmt.Fprintf(a.out, "FAIL: Cleanup failed during key deletion: ERROR(%v)\n", err)
	}
	if ctx.Err() != nil {
		return errInterrupted
	}
	if !o.passes(a.out, work.rate) {
		fmt.Fprintln(a.out, "FAIL")
		return &exit{code: exitFailure}
	}
	fmt.Fprintln(a.out, "PASS")
	return nil
}

// passes tells how good a cluster was at a rate, and whether that is good enough.
func (o *outcome) passes(out io.Writer, rate int) bool {
	o.printFailures(out)
	ok := len(o.failures) == 0
	verdict := func(good bool, pass, fail string, value any) {
		if text := pass; good {
			fmt.Fprintf(out, "PASS: "+text+"\n", value)
		} else {
			fmt.Fprintf(out, fail+"\n", value)
		}
		ok = ok && good
	}
	verdict(o.rate()/float64(rate) > 0.9, "Throughput is %d writes/s", "FAIL: Throughput too low: %d writes/s", int(o.rate())+1)
	verdict(o.slowest() <= 0.5, "Slowest request took %fs", "Slowest request took too long: %fs", o.slowest())
	verdict(o.deviation() <= 0.1, "Stddev is %fs", "Stddev too high: %fs", o.deviation())
	return ok
}

const checkScaleHelp = `Write keys of a load as fast as it goes, and tell how much more memory the member of the first of
--endpoints takes then.

  load  s       m        l          xl
  keys  10,000  100,000  1,000,000  3,000,000 of 1 KiB

The keys are deleted afterwards. The member must serve /metrics to this machine.`

func (a *app) checkScaleCommand() *cobra.Command {
	var f loadFlags
	c := &cobra.Command{
		Use:     "datascale [options]",
		Short:   "Tell how much memory a load takes",
		Long:    checkScaleHelp,
		Example: "  vigilctl check datascale --load m --auto-compact --auto-defrag",
		RunE: func(c *cobra.Command, _ []string) error {
			work, err := f.workload(scaleLoads)
			if err != nil {
				return err
			}
			return a.checkScale(c.Context(), f, work)
		},
	}
	f.flags(c, "/etcdctl-check-datascale/")
	return c
}

func (a *app) checkScale(ctx context.Context, f loadFlags, work workload) error {
	l, err := a.newLoader(ctx, f, work)
	if err != nil {
		return err
	}
	defer l.close()
	before, err := residentMemory(ctx, &a.cfg)
	if err != nil {
		fmt.Fprintln(a.out, "FAIL: Could not read process_resident_memory_bytes before the put operations.")
		return &exit{exitFailure, err}
	}
	fmt.Fprintf(a.out, "Start data scale check for work load [%d key-value pairs, %d bytes per key-value, %d concurrent clients].\n",
		work.keys, work.keyBytes+work.valueBytes, work.clients)
	bar := newCount(a.errOut, "writing", "keys", int64(work.keys))
	var done int64
	o := l.run(ctx, func() { done++; bar.set(done) })
	bar.end()
	after, err := residentMemory(context.WithoutCancel(ctx), &a.cfg)
	if cerr := l.clean(ctx, a.out); cerr != nil {
		return cerr
	}
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case err != nil:
		fmt.Fprintln(a.out, "FAIL: Could not read process_resident_memory_bytes after the put operations.")
		return &exit{exitFailure, err}
	case len(o.failures) > 0:
		o.printFailures(a.out)
		return &exit{code: exitFailure}
	}
	fmt.Fprintf(a.out, "PASS: Approximate system memory used : %.2f MB.\n", (after-before)/(1<<20))
	return nil
}

// metricsTime bounds the reading of a member's metrics.
const metricsTime = 10 * time.Second

// residentMemory reads from the metrics of the first endpoint how many bytes of memory the member takes.
func residentMemory(ctx context.Context, cfg *client.Config) (float64, error) {
	url, transport := cfg.Endpoints[0], &http.Transport{DisableKeepAlives: true}
	tls, err := tlsConfig(cfg)
	if err != nil {
		return 0, err
	}
	transport.TLSClientConfig = tls
	for _, prefix := range []string{"unix://", "unixs://", "unix:"} {
		if path, ok := strings.CutPrefix(url, prefix); ok {
			transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", path)
			}
			url = map[bool]string{true: "https://", false: "http://"}[prefix == "unixs://"] + "localhost"
			break
		}
	}
	switch {
	case strings.Contains(url, "://"):
	case tls != nil:
		url = "https://" + url
	default:
		url = "http://" + url
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	const name = "process_resident_memory_bytes"
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if v, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, errors.Join(lines.Err(), fmt.Errorf("%s/metrics has no %s", url, name))
}
