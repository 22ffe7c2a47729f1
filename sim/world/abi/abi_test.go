package abi

import (
	"fmt"
	"io"
	"syscall"
	"testing"
)

func TestErrors(t *testing.T) {
	for _, e := range errnos[1:] {
		if got := Error(Result(fmt.Errorf("wrapped: %w", e))); got != e {
			t.Errorf("%v became %v", e, got)
		}
	}
	for _, n := range []int64{Result(io.ErrNoProgress), 0, 1, -1000, -1 << 63} {
		if got := Error(n); got != syscall.EIO {
			t.Errorf("%d: %v", n, got)
		}
	}
}
