package archiver

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestGuardLeavesRoom: while one operation fewer hangs than may run, those of entries are made one
// after another, and those of bases fail.
func TestGuardLeavesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g guard
		release := make(chan struct{})
		hang := func(ctx context.Context) error {
			<-release
			return nil
		}
		bases := forBases(t.Context())
		for i := range maxRunning - 1 {
			ctx := t.Context()
			if i < maxBases-1 {
				ctx = bases
			}
			if err := g.do(ctx, time.Second, hang); !errors.Is(err, errHanging) {
				t.Fatal(err)
			}
		}
		pause := func(context.Context) error {
			time.Sleep(time.Second)
			return nil
		}
		begun := time.Now()
		done := make(chan error)
		for range 3 {
			go func() { done <- g.do(t.Context(), 2*time.Second, pause) }()
		}
		if err := g.do(bases, time.Second, pause); err != errHanging {
			t.Errorf("an operation of a base: %v", err)
		}
		for range 3 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("three operations took %v", took)
		}
		// An operation that waits does not wait for one that begins to hang.
		go func() { done <- g.do(t.Context(), time.Second, hang) }()
		synctest.Wait()
		if err := g.do(t.Context(), time.Second, pause); err != errHanging {
			t.Errorf("all hang: %v", err)
		}
		<-done
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := g.do(ctx, time.Second, pause); err != errHanging {
			t.Errorf("all hang: %v", err)
		}
		close(release)
		synctest.Wait()
		if g.hanging() != 0 || g.mu.running != (count{}) || g.mu.hanging != (count{}) {
			t.Errorf("%+v", &g.mu)
		}
		// One that waits ends with its context.
		for range maxRunning {
			go func() { done <- g.do(t.Context(), 2*time.Second, pause) }()
		}
		synctest.Wait()
		ctx, cancel = context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if err := g.do(ctx, time.Second, pause); err != context.DeadlineExceeded {
			t.Errorf("the context has ended: %v", err)
		}
		for range maxRunning {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := g.do(bases, 2*time.Second, pause); err != nil {
			t.Error(err)
		}
	})
}
