package main

import (
	"context"
	"io"
	"strings"
	"testing"

	"vigil/cmd/vigilctl/exit"
)

// TestInterruptedInput: an interrupt ends a command that waits for standard input.
func TestInterruptedInput(t *testing.T) {
	for _, args := range [][]string{{"put", "k"}, {"txn"},
		{"user", "add", "u", "--interactive=false"}, {"load", "-"}} {
		in, typed := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var out strings.Builder
		if code := run(ctx, args, in, io.Discard, &out); code != exit.Interrupted ||
			!strings.HasSuffix(out.String(), "Error: interrupted\n") {
			t.Errorf("%q: %d %s", args, code, out.String())
		}
		_ = typed.Close() // nothing reads it
	}
}
