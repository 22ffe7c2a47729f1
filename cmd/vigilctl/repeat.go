package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/screen"
)

// repeated are the commands with --watch: their output changes over time, and they change nothing.
var repeated = [][]string{{"member", "list"}, {"endpoint", "status"}, {"endpoint", "health"},
	{"endpoint", "hashkv"}, {"alarm", "list"},
	{"lease", "list"}, {"lease", "timetolive"}, {"tree"}, {"doctor"}}

// leastInterval limits the load of a repeated command.
const leastInterval = 100 * time.Millisecond

// addWatchFlags adds --watch to the commands in repeated.
func addWatchFlags(root *cobra.Command, env *cli.Env) {
	for _, path := range repeated {
		if c, _, err := root.Find(path); err == nil {
			repeat(c, env)
		}
	}
}

// repeat makes --watch run a command again and again.
func repeat(c *cobra.Command, env *cli.Env) {
	once := c.RunE
	var every time.Duration
	c.Flags().DurationVar(&every, "watch", 0,
		"run the command again and again, each time after this `INTERVAL`, until q or Ctrl-C; --watch alone: 2s")
	c.Flags().Lookup("watch").NoOptDefVal = "2s"
	c.RunE = func(c *cobra.Command, args []string) error {
		switch {
		case !c.Flags().Changed("watch"):
			return once(c, args)
		case every < leastInterval:
			return exit.Usage("--watch %v: at least %v", every, leastInterval)
		}
		r := repetition{env: env, out: env.Stdout,
			title: fmt.Sprintf("every %v: %s", every,
				strings.Join(append([]string{c.CommandPath()}, args...), " "))}
		return r.run(c.Context(), every, func(ctx context.Context) error {
			c.SetContext(ctx)
			return once(c, args)
		})
	}
}

// repetition runs a command again and again.
type repetition struct {
	env   *cli.Env
	out   *cli.Output // standard output
	title string
}

// run draws the outputs on a terminal. Elsewhere it prints them one after the other.
func (r *repetition) run(ctx context.Context, every time.Duration,
	once func(context.Context) error) error {
	out := r.out.Drawing()
	_, _, terminal := screen.Size(out)
	if !terminal || os.Getenv("TERM") == "dumb" {
		return r.print(ctx, every, once)
	}
	s, err := screen.Open(out)
	if err != nil {
		return err
	}
	keys, restore, ok := screen.ReadKeys(r.env.Stdin)
	if !ok {
		restore = func() error { return nil }
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case k := <-keys: // nil if keys cannot be read
				if k == "q" || k == screen.Break {
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	paint := screen.NewPaint(out)
	for err == nil {
		text := r.output(ctx, once)
		if ctx.Err() != nil {
			break
		}
		width, _, _ := screen.Size(out)
		head := screen.Wrap(fmt.Sprintf("%s, %s", r.title,
			time.Now().Format(time.TimeOnly)), max(width, 1))
		for i := range head {
			head[i] = paint.In(screen.Faint, head[i])
		}
		err = s.Draw(append(append(head, ""),
			strings.Split(strings.TrimSuffix(text, "\n"), "\n")...))
		if err == nil && !pause(ctx, every, ended) {
			break
		}
	}
	cancel()
	<-ended
	return errors.Join(err, restore(), s.Close())
}

// print prints the outputs one after the other, with an empty line between them.
func (r *repetition) print(ctx context.Context, every time.Duration,
	once func(context.Context) error) error {
	for {
		err := once(ctx)
		if ctx.Err() != nil {
			return cli.ErrInterrupted
		}
		printError(r.env.Stderr, err)
		if !pause(ctx, every, nil) {
			return cli.ErrInterrupted
		}
		if _, err := io.WriteString(r.out, "\n"); err != nil {
			return err
		}
	}
}

// pause waits. It returns false if the command ends during the wait.
func pause(ctx context.Context, d time.Duration, ended <-chan struct{}) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ended:
	case <-ctx.Done():
	}
	return false
}

// output runs the command and returns its output, including an error: the next run may succeed.
func (r *repetition) output(ctx context.Context, once func(context.Context) error) string {
	var b bytes.Buffer
	stderr := r.env.Stderr
	r.env.Stdout = r.out.Capture(&b)
	r.env.Stderr = r.env.Stdout
	defer func() { r.env.Stdout, r.env.Stderr = r.out, stderr }()
	printError(r.env.Stdout, once(ctx))
	return b.String()
}

// printError prints an error, unless the command has already printed it.
func printError(w io.Writer, err error) {
	if e, ok := errors.AsType[*exit.Error](err); err != nil && (!ok || e.Err != nil) {
		fmt.Fprintln(w, "Error:", err)
	}
}
