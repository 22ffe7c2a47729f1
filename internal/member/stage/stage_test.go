package stage

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// TestCarry: a caller carries out the stages it names, in order, and the goroutines of the line the
// rest.
func TestCarry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine()
		var mu sync.Mutex
		var got []string
		note := func(what string, prompt bool) {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, fmt.Sprint(what, prompt))
		}
		var a, b, c *Stage
		a = l.Add(func(prompt bool) bool { note("a", prompt); b.PostNext(); return false }, 1)
		b = l.Add(func(prompt bool) bool { note("b", prompt); c.PostNext(); return prompt }, 1)
		c = l.Add(func(prompt bool) bool { note("c", prompt); return false }, 1)
		l.Start()
		a.Carry(b)
		synctest.Wait()
		if want := []string{"atrue", "btrue", "bfalse", "cfalse"}; !slices.Equal(got, want) {
			t.Errorf("carried out %q, want %q", got, want)
		}
		got = nil
		a.Post()
		synctest.Wait()
		if want := []string{"afalse", "bfalse", "cfalse"}; !slices.Equal(got, want) {
			t.Errorf("carried out %q, want %q", got, want)
		}
		l.Close()
	})
}

// TestCarryEnds: others may always have work, and a caller returns to its own.
func TestCarryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine()
		const steps = 1000
		var a, b *Stage
		var done, prompts atomic.Int32
		step := func(prompt bool, next **Stage) bool {
			if prompt {
				prompts.Add(1)
			}
			if done.Add(1) < steps {
				(*next).PostNext()
			}
			return false
		}
		a = l.Add(func(prompt bool) bool { return step(prompt, &b) }, 1)
		b = l.Add(func(prompt bool) bool { return step(prompt, &a) }, 1)
		l.Start()
		a.Carry(a, b)
		synctest.Wait()
		if n := prompts.Load(); n > mostCarried {
			t.Errorf("the caller has carried out %d stages", n)
		}
		if n := done.Load(); n != steps {
			t.Errorf("%d steps are done, want %d", n, steps)
		}
		l.Close()
	})
}

// TestBlockedStage: a stage that waits keeps no other one from being carried out, and is not
// carried out twice at once.
func TestBlockedStage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := NewLine()
		release := make(chan struct{})
		var inA, ranB atomic.Int32
		a := l.Add(func(bool) bool {
			if inA.Add(1) > 1 {
				t.Error("two goroutines hold the token")
			}
			<-release
			inA.Add(-1)
			return false
		}, 1)
		b := l.Add(func(bool) bool { ranB.Add(1); return false }, 1)
		l.Start()
		a.Post()
		synctest.Wait()
		a.Post()
		a.Carry()
		for i := range int32(5) {
			b.Post()
			synctest.Wait()
			if n := ranB.Load(); n != i+1 {
				t.Fatalf("b was carried out %d times, want %d", n, i+1)
			}
		}
		if !a.Busy() || b.Busy() {
			t.Error("busy")
		}
		closed := make(chan struct{})
		go func() { a.Close(); close(closed) }()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed before its work has ended")
		default:
		}
		close(release)
		<-closed
		a.Post()
		l.Close()
	})
}

// TestCloseWithWorkLeft: a stage that is closed does what is left.
func TestCloseWithWorkLeft(t *testing.T) {
	l := NewLine()
	var done atomic.Bool
	a := l.Add(func(prompt bool) bool {
		if !prompt {
			done.Store(true)
		}
		return prompt
	}, 1)
	l.Start()
	a.Carry()
	a.Close()
	if !done.Load() {
		t.Error("closed with work left")
	}
	l.Close()
}

// TestNothingIsLost: each post is followed by work, from many goroutines.
func TestNothingIsLost(t *testing.T) {
	l := NewLine()
	var posted, seen [3]atomic.Int64
	var stages [3]*Stage
	for i := range stages {
		stages[i] = l.Add(func(prompt bool) bool {
			seen[i].Store(posted[i].Load())
			if i+1 < len(stages) {
				posted[i+1].Add(1)
				stages[i+1].PostNext()
			}
			return false
		}, 1+i/2)
	}
	l.Start()
	var posters sync.WaitGroup
	for p := range 4 {
		posters.Go(func() {
			for range 20_000 {
				posted[0].Add(1)
				if p%2 == 0 {
					stages[0].Post()
				} else {
					stages[0].Carry(stages[1:]...)
				}
			}
		})
	}
	posters.Wait()
	l.Close()
	for i := range stages {
		if got, want := seen[i].Load(), posted[i].Load(); i < 2 && got != want {
			t.Errorf("stage %d has seen %d of %d", i, got, want)
		}
	}
}
