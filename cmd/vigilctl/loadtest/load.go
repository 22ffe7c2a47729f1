package loadtest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
)

// workload is a load of check perf or check datascale. The sizes and numbers equal etcdctl's, so
// that results are comparable.
type workload struct {
	// rate is the number of writes per second, which last for duration. 0 means keys writes, as
	// fast as possible.
	rate     int
	duration time.Duration
	keys     int
	clients  int
	// keyBytes is the length of keys after the prefix.
	keyBytes, valueBytes int
}

const perfTime = time.Minute

var perfLoads = map[string]workload{
	"s":  {rate: 150, clients: 50, duration: perfTime, keyBytes: 256, valueBytes: 1024},
	"m":  {rate: 1000, clients: 200, duration: perfTime, keyBytes: 256, valueBytes: 1024},
	"l":  {rate: 8000, clients: 500, duration: perfTime, keyBytes: 256, valueBytes: 1024},
	"xl": {rate: 15000, clients: 1000, duration: perfTime, keyBytes: 256, valueBytes: 1024},
}

var scaleLoads = map[string]workload{
	"s":  {keys: 10_000, clients: 50, keyBytes: 512, valueBytes: 512},
	"m":  {keys: 100_000, clients: 200, keyBytes: 512, valueBytes: 512},
	"l":  {keys: 1_000_000, clients: 500, keyBytes: 512, valueBytes: 512},
	"xl": {keys: 3_000_000, clients: 1000, keyBytes: 512, valueBytes: 512},
}

// loadFlags are the flags of both commands.
type loadFlags struct {
	load, prefix    string
	compact, defrag bool
}

func (f *loadFlags) addFlags(c *cobra.Command, prefix string) {
	flags := c.Flags()
	flags.StringVar(&f.load, "load", "s",
		"the size of the load: s(mall), m(edium), l(arge) or xl(arge)")
	flags.StringVar(&f.prefix, "prefix", prefix,
		"the prefix of the keys that are written; no key may have it yet")
	flags.BoolVar(&f.compact, "auto-compact", false, "compact the store afterwards")
	flags.BoolVar(&f.defrag, "auto-defrag", false,
		"defragment the members of --endpoints afterwards")
	command.CompleteFlag(c, "load", []string{"s", "m", "l", "xl"})
}

// workload returns the load with a name.
func (f *loadFlags) workload(loads map[string]workload) (workload, error) {
	long := map[string]string{"small": "s", "medium": "m", "large": "l", "xLarge": "xl"}
	name := f.load
	if s, ok := long[name]; ok {
		name = s
	}
	w, ok := loads[name]
	if !ok {
		return w, exit.With(exit.BadFeature,
			fmt.Errorf("unknown load option %s: s, m, l and xl are known", f.load))
	}
	return w, nil
}

// loader writes a load to a cluster.
type loader struct {
	env  *cli.Env
	f    loadFlags
	work workload
	// clients has one connection for each client of the load.
	clients []*client.Client
}

// newLoader connects the clients of a load. It returns an error if there are keys that deleteKeys
// would delete.
func newLoader(ctx context.Context, env *cli.Env, f loadFlags, work workload) (*loader, error) {
	l := &loader{env: env, f: f, work: work}
	for range work.clients {
		c, err := env.Connect(ctx)
		if err != nil {
			l.close()
			return nil, err
		}
		l.clients = append(l.clients, c)
	}
	ctx, cancel := context.WithTimeout(ctx, env.Timeout())
	defer cancel()
	n, err := l.clients[0].Count(ctx, f.prefix, client.WithPrefix())
	if err == nil && n > 0 {
		err = exit.With(exit.InvalidInput,
			fmt.Errorf("prefix %q has keys. Delete with 'vigilctl del --prefix %s' first", f.prefix,
				command.QuoteArgs(f.prefix)))
	}
	if err != nil {
		l.close()
		return nil, cli.CallError(err)
	}
	return l, nil
}

func (l *loader) close() {
	for _, c := range l.clients {
		_ = c.Close()
	}
}

// outcome is the result of a load.
type outcome struct {
	took     time.Duration
	writes   []time.Duration // the times of successful writes
	failures map[string]int
}

// rate returns the writes per second.
func (o *outcome) rate() float64 { return float64(len(o.writes)) / max(o.took.Seconds(), 1e-9) }

// slowest returns the longest time of a write, in seconds.
func (o *outcome) slowest() float64 {
	if len(o.writes) == 0 {
		return 0
	}
	return slices.Max(o.writes).Seconds()
}

// deviation returns the standard deviation of the times of writes, in seconds.
func (o *outcome) deviation() float64 {
	if len(o.writes) == 0 {
		return 0
	}
	var sum, squares float64
	for _, d := range o.writes {
		sum += d.Seconds()
	}
	mean := sum / float64(len(o.writes))
	for _, d := range o.writes {
		squares += (d.Seconds() - mean) * (d.Seconds() - mean)
	}
	return math.Sqrt(squares / float64(len(o.writes)))
}

// writeLoad writes the load and calls progress after each write.
func (l *loader) writeLoad(ctx context.Context, progress func()) *outcome {
	o := &outcome{failures: map[string]int{}}
	due := make(chan struct{}, l.work.clients)
	began := time.Now()
	go func() {
		defer close(due)
		l.paceWrites(ctx, began, due)
	}()
	value := make([]byte, l.work.valueBytes)
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, c := range l.clients {
		all.Go(func() {
			key := make([]byte, l.work.keyBytes)
			for range due {
				binary.PutVarint(key, rand.Int64())
				sent := time.Now()
				// Let a write that is in progress at the end of the load complete.
				err := l.putKey(context.WithoutCancel(ctx), c, l.f.prefix+string(key), value)
				took := time.Since(sent)
				mu.Lock()
				if err != nil {
					o.failures[cli.CallError(err).Error()]++
				} else {
					o.writes = append(o.writes, took)
				}
				progress()
				mu.Unlock()
			}
		})
	}
	all.Wait()
	o.took = time.Since(began)
	return o
}

// putKey writes a key.
func (l *loader) putKey(ctx context.Context, c *client.Client, key string, value []byte) error {
	ctx, cancel := context.WithTimeout(ctx, l.env.Timeout())
	defer cancel()
	_, err := c.Put(ctx, key, value)
	return err
}

// burst limits how far a delayed load may catch up at once.
const burst = 10 * time.Millisecond

// paceWrites sends to due whenever a write is due.
func (l *loader) paceWrites(ctx context.Context, began time.Time, due chan<- struct{}) {
	next := began
	for n := 0; l.work.rate > 0 || n < l.work.keys; n++ {
		if l.work.rate > 0 {
			next = next.Add(time.Second / time.Duration(l.work.rate))
			if late := time.Now().Add(-burst); next.Before(late) {
				next = late
			}
			if next.Sub(began) >= l.work.duration {
				return
			}
			select {
			case <-time.After(time.Until(next)):
			case <-ctx.Done():
				return
			}
		}
		select {
		case due <- struct{}{}:
		case <-ctx.Done():
			return
		}
	}
}

// cleanTimeout limits each step of the cleanup.
const cleanTimeout = 30 * time.Second

// deleteKeys deletes the keys, compacts and defragments. It does so after an interrupt too.
func (l *loader) deleteKeys(ctx context.Context, out io.Writer) error {
	ctx = context.WithoutCancel(ctx)
	step := func(run func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, cleanTimeout)
		defer cancel()
		return cli.CallError(run(ctx))
	}
	var rev int64
	err := step(func(ctx context.Context) error {
		r, err := l.clients[0].Delete(ctx, l.f.prefix, client.WithPrefix())
		if err == nil {
			rev = r.Header.Revision
		}
		return err
	})
	if err != nil {
		return err
	}
	if l.f.compact {
		fmt.Fprintf(out, "Compacting with revision %d\n", rev)
		if err := step(func(ctx context.Context) error {
			_, err := l.clients[0].Compact(ctx, rev, client.WithPhysical())
			return err
		}); err != nil {
			return err
		}
		fmt.Fprintf(out, "Compacted with revision %d\n", rev)
	}
	if !l.f.defrag {
		return nil
	}
	for _, ep := range l.env.Config.Endpoints {
		fmt.Fprintf(out, "Defragmenting %q\n", ep)
		if err := step(func(ctx context.Context) error {
			one, err := l.clients[0].At(ep)
			if err == nil {
				_, err = one.Maintenance().Defragment(ctx)
			}
			return err
		}); err != nil {
			return err
		}
		fmt.Fprintf(out, "Defragmented %q\n", ep)
	}
	return nil
}

// printFailures prints how many writes failed with each error.
func (o *outcome) printFailures(out io.Writer) {
	if len(o.failures) == 0 {
		return
	}
	fmt.Fprintln(out, "FAIL: too many errors")
	for _, text := range slices.Sorted(maps.Keys(o.failures)) {
		fmt.Fprintf(out, "FAIL: ERROR(%s) -> %d\n", text, o.failures[text])
	}
}

var errInterrupted = exit.With(exit.Interrupted,
	errors.New("interrupted; the keys that were written have been deleted"))
