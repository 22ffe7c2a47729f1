// Package monitor has the commands that show what members do, redrawn on a terminal: top and
// watchers.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/survey"
)

// minInterval limits the load of a live view.
const minInterval = 100 * time.Millisecond

// liveView shows a survey on the screen.
type liveView struct {
	survey.Survey
	interval time.Duration
	// console, if set, redraws a view that the user controls with keys.
	console func(ctx context.Context, s *screen.Screen, keys <-chan screen.Key,
		paint screen.Paint) error
}

func splitLines(s string) []string { return strings.Split(s, "\n") }

// picture returns the lines to show, at most width wide unless width is 0.
type picture func(ctx context.Context, width int, p screen.Paint) ([]string, error)

// addFlags declares --cluster and --interval.
func (v *liveView) addFlags(c *cobra.Command) {
	v.AddFlags(c)
	c.Flags().DurationVar(&v.interval, "interval", 2*time.Second,
		"how often to look, at least "+minInterval.String())
}

func (v *liveView) checkInterval() error {
	if v.interval < minInterval {
		return exit.Usage("--interval %v: at least %v", v.interval, minInterval)
	}
	return nil
}

// errEnded reports that the user ended a live view. The command has not failed.
var errEnded = errors.New("ended")

// run connects, finds the members and calls f.
func (v *liveView) run(c *cobra.Command, f func(ctx context.Context) error) error {
	ended := false
	err := v.Run(c, func(ctx context.Context) error {
		err := f(ctx)
		ended = errors.Is(err, errEnded)
		return err
	})
	if ended {
		return nil
	}
	return err
}

// show prints the view once, or redraws it until the user ends it if it is live and on a terminal.
func (v *liveView) show(ctx context.Context, live bool, draw picture) error {
	out := v.Env.Stdout.Drawing()
	paint := screen.NewPaint(out)
	width, _, terminal := screen.Size(out)
	if !live || !terminal {
		lines, err := draw(ctx, width, paint)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(out, strings.Join(lines, "\n"))
		return err
	}
	if os.Getenv("TERM") == "dumb" {
		return errors.New("the terminal cannot be drawn on (TERM=dumb): leave --live out, or use --once")
	}
	s, err := screen.Open(out)
	if err != nil {
		return err
	}
	if keys, restore, ok := v.keys(); ok {
		if err = v.console(ctx, s, keys, paint); err == nil {
			err = errEnded // the user pressed a key
		}
		return errors.Join(err, restore(), s.Close())
	}
	err = v.redraw(ctx, s, draw, paint)
	err = errors.Join(err, s.Close())
	if ctx.Err() != nil {
		return errEnded
	}
	return err
}

// keys returns the pressed keys if the user controls the view with keys and standard input is a
// terminal.
func (v *liveView) keys() (keys <-chan screen.Key, restore func() error, ok bool) {
	if v.console == nil {
		return nil, nil, false
	}
	return screen.ReadKeys(v.Env.Stdin)
}

func (v *liveView) redraw(ctx context.Context, s *screen.Screen, draw picture,
	paint screen.Paint) error {
	t := time.NewTicker(v.interval)
	defer t.Stop()
	for {
		width, _, _ := screen.Size(v.Env.Stdout)
		lines, err := draw(ctx, width, paint)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.Draw(lines); err != nil {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}
