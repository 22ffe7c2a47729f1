package abuse

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"vigil/test/proc"
)

const mib = 1 << 20

// figures are what an attack costs.
type figures struct {
	// memory is how much anonymous memory the process took more than before, at most, in bytes.
	memory int64
	// log is how much it logged, in bytes.
	log int
	// files is how many file descriptors it had more than before, at most.
	files int
	// worst is the longest that a call of another client took, by a watch.
	worst time.Duration
	// processor is how much processor time the server took; a bound of 0 is none.
	processor time.Duration
	// failed is how many of its calls failed. One that timed out while the processes had no
	// processor does not count.
	failed int
}

func (f figures) String() string {
	return fmt.Sprintf("%d MiB of memory, %v of processor time, %d KiB of log, %d files, another client's slowest call %v, %d of its calls failed",
		f.memory/mib, f.processor, f.log>>10, f.files, f.worst.Round(time.Millisecond), f.failed)
}

// within reports what of the figures is above a bound.
func (f figures) within(t *testing.T, most figures) {
	t.Helper()
	if f.memory > most.memory || f.log > most.log || f.files > most.files || f.worst > most.worst ||
		f.failed > most.failed || most.processor > 0 && f.processor > most.processor {
		t.Errorf("the attack cost %v\nmore than %v", f, most)
	}
}

// spell returns how long something is repeated, which is less in the short form.
func spell(d time.Duration) time.Duration {
	if testing.Short() {
		return d / 4
	}
	return d
}

// attack is what is done to a server.
type attack struct {
	config proc.Config
	// prepare fills the store.
	prepare func(t *testing.T, s *proc.Server)
	// do attacks, and returns when that is over. The error is what the attacker did not get that
	// should have been given.
	do func(t *testing.T, s *proc.Server) error
	// most bounds the cost for Vigil.
	most figures
}

// run attacks Vigil, and a stock etcd if that is asked for.
func (a attack) run(t *testing.T) {
	t.Helper()
	t.Run("vigil", func(t *testing.T) {
		f, err := a.on(t, proc.Vigil)
		t.Log(f)
		f.within(t, a.most)
		if err != nil {
			t.Error(err)
		}
	})
	if os.Getenv("VIGIL_ABUSE") == "compare" {
		t.Run("etcd", func(t *testing.T) { t.Log(a.on(t, proc.Etcd)) })
	}
}

// on attacks a program while another client works, and returns what it cost.
func (a attack) on(t *testing.T, p proc.Program) (figures, error) {
	t.Helper()
	c := a.config
	c.Program, c.Memory = p, true
	if p == proc.Etcd {
		// It knows no flags of ours.
		var args []string
		for _, arg := range c.Args {
			if !strings.HasPrefix(arg, "--max-range-bytes-in-flight") {
				args = append(args, arg)
			}
		}
		c.Args = args
	}
	s := proc.Start(t, c)
	if a.prepare != nil {
		a.prepare(t, s)
	}
	other := s.Client()
	before := figures{memory: anonymous(t, s.Pid()), log: len(s.Log().String()),
		files: files(s.Pid())}
	var f figures
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { // looks at the process
		for {
			if n, err := statusBytes(s.Pid(), "RssAnon:"); err == nil {
				f.memory = max(f.memory, n-before.memory)
			}
			f.files = max(f.files, files(s.Pid())-before.files)
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	wg.Go(func() { // the other client
		for i := 0; ; i++ {
			w := measure(s.Pid())
			err := work(other, i)
			took, waited := w.read()
			f.worst = max(f.worst, took)
			// A call ends after 7 s. Without the wait for a processor it might have ended within
			// the limit.
			starved := waited > took || took < a.most.worst && waited > 7*time.Second-a.most.worst
			if err != nil && !(starved && timedOut(err)) {
				if f.failed++; f.failed == 1 {
					t.Logf("another client's call failed after %v, and %v without a processor: %v",
						took, waited, err)
				}
			}
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	began := processor(t, s.Pid())
	err := a.do(t, s)
	f.processor = processor(t, s.Pid()) - began
	close(over)
	wg.Wait()
	if !s.Running() {
		t.Fatalf("the server has stopped:\n%s", s.Log().Tail(20))
	}
	f.log = len(s.Log().String()) - before.log
	return f, err
}

// work is one write and one read of the other client.
func work(c *clientv3.Client, i int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	key := fmt.Sprint("other", i%100)
	if _, err := c.Put(ctx, key, "value"); err != nil {
		return err
	}
	_, err := c.Get(ctx, key)
	return err
}

func timedOut(err error) bool {
	return errors.Is(err, rpctypes.ErrTimeout) || errors.Is(err, context.DeadlineExceeded)
}

func anonymous(t *testing.T, pid int) int64 {
	t.Helper()
	n, err := statusBytes(pid, "RssAnon:")
	if err != nil {
		t.Skip(err)
	}
	return n
}

// statusBytes reads a size from what the kernel says of a process.
func statusBytes(pid int, name string) (int64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("the kernel does not report %s", name)
}

func files(pid int) int {
	list, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(list)
}
