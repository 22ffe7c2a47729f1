package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"

	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

// Output is standard output. It keeps the first error of a write, so that no command reports
// success without its output. It is as safe for concurrent use as the underlying writer.
type Output struct {
	to     io.Writer
	text   io.Writer // to, guarded if it is a terminal
	plain  bool
	failed atomic.Pointer[error]
	lost   chan struct{} // closed with the first error
}

// NewOutput returns an Output that writes to w.
func NewOutput(w io.Writer) *Output {
	return &Output{to: w, text: screen.Guard(w), lost: make(chan struct{})}
}

// Context returns a context that also ends with the first error of a write: a command ends and
// cleans up, as after an interrupt.
func (o *Output) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		select {
		case <-o.lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Capture returns an Output that writes to w, with the width and colors of this one.
func (o *Output) Capture(w io.Writer) *Output {
	c := NewOutput(captured{w, o.to})
	c.plain = o.plain
	return c
}

// captured is a writer with the properties of another one.
type captured struct {
	io.Writer
	of io.Writer
}

// Unwrap implements an interface of package screen.
func (c captured) Unwrap() io.Writer { return c.of }

// Write implements io.Writer. On a terminal it replaces characters that control one: keys, values
// and names may contain them.
func (o *Output) Write(b []byte) (int, error) { return o.write(o.text, b) }

func (o *Output) write(to io.Writer, b []byte) (int, error) {
	n, err := to.Write(b)
	if err != nil && o.failed.CompareAndSwap(nil, &err) {
		close(o.lost)
	}
	return n, err
}

// Drawing returns the output for screens and colors, whose texts are already safe.
func (o *Output) Drawing() io.Writer { return drawing{o} }

type drawing struct{ *Output }

func (d drawing) Write(b []byte) (int, error) { return d.write(d.to, b) }

// NoColor implements an interface of package screen.
func (o *Output) NoColor() bool { return o.plain }

// Unwrap returns the underlying writer, for package screen and for the standard output of other
// programs.
func (o *Output) Unwrap() io.Writer { return o.to }

// Err returns why the output is incomplete, nil if it is complete.
func (o *Output) Err() error {
	if p := o.failed.Load(); p != nil {
		return fmt.Errorf("standard output: %w", *p)
	}
	return nil
}

// checkFormat returns an error for an unknown output format.
func (e *Env) checkFormat() error {
	if !slices.Contains(show.Formats, e.Format) {
		return exit.With(exit.BadFeature,
			fmt.Errorf("unsupported output format %q: --write-out takes %s", e.Format,
				strings.Join(show.Formats, ", ")))
	}
	return nil
}

// Printer returns the printer of the output format. If allowed is not empty, the format must be in
// it.
func (e *Env) Printer(allowed ...show.Format) (*show.Printer, error) {
	if err := e.checkFormat(); err != nil {
		return nil, err
	}
	f := show.Format(e.Format)
	if len(allowed) > 0 && !slices.Contains(allowed, f) {
		var names []string
		for _, a := range allowed {
			names = append(names, string(a))
		}
		return nil, exit.With(exit.BadFeature,
			fmt.Errorf("%w: --write-out takes %s here", &show.UnsupportedError{Format: f},
				strings.Join(names, ", ")))
	}
	out := io.Writer(e.Stdout)
	if f == show.Protobuf {
		out = e.Stdout.Drawing() // raw bytes: replacing any would make another message
	}
	return &show.Printer{Out: out, Format: f, Hex: e.hex}, nil
}

// Print prints an answer.
func (e *Env) Print(answer show.Answer) error {
	p, err := e.Printer()
	if err != nil {
		return err
	}
	var unsupported *show.UnsupportedError
	if err = p.Print(answer); errors.As(err, &unsupported) {
		return exit.With(exit.BadFeature, err)
	}
	return err
}
