package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/client"
	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

// leastInterval keeps a picture that is drawn again and again from being a load.
const leastInterval = 100 * time.Millisecond

// looking is what the commands that look at every member have in common.
type looking struct {
	app      *app
	all      bool // also at members that are not among the endpoints
	interval time.Duration

	client  *client.Client
	members []*probe.Member
}

func (l *looking) addTo(c *cobra.Command) {
	c.Flags().BoolVar(&l.all, "cluster", false, "look at all members, at the addresses that they advertise")
}

// addInterval declares how often a picture is drawn.
func (l *looking) addInterval(c *cobra.Command) {
	c.Flags().DurationVar(&l.interval, "interval", 2*time.Second, "how often to look, at least "+leastInterval.String())
}

// run connects, finds the members and calls f.
func (l *looking) run(c *cobra.Command, f func(ctx context.Context) error) error {
	ended := false
	err := l.app.long(c, func(ctx context.Context, cl *client.Client) error {
		l.client = cl
		if err := l.find(ctx); err != nil {
			return err
		}
		defer func() {
			for _, m := range l.members {
				m.Close()
			}
		}()
		err := f(ctx)
		ended = errors.Is(err, errEnded)
		return err
	})
	if ended {
		return nil
	}
	return err
}

// timeout is how long one member may take.
func (l *looking) timeout() time.Duration { return l.app.commandTimeout + l.app.cfg.DialTimeout }

// find makes the list of members.
func (l *looking) find(ctx context.Context) error {
	endpoints := slices.Clone(l.app.cfg.Endpoints)
	if l.all {
		ctx, cancel := context.WithTimeout(ctx, l.timeout())
		defer cancel()
		r, err := l.client.MemberList(ctx)
		if err != nil {
			return err
		}
		endpoints = nil
		for _, m := range r.Members {
			if len(m.ClientURLs) > 0 {
				endpoints = append(endpoints, m.ClientURLs[0])
			}
		}
	}
	secure, err := l.app.cfg.SecureHTTP()
	if err != nil {
		return &exit{exitBadConnection, err}
	}
	token, err := l.token(ctx)
	if err != nil {
		return err
	}
	for _, e := range endpoints {
		l.members = append(l.members, probe.New(e, token, secure, l.timeout()))
	}
	return nil
}

// token returns what proves to members who asks over HTTP; empty if there is no user.
func (l *looking) token(ctx context.Context) (string, error) {
	cfg := &l.app.cfg
	if l.app.token != "" || cfg.Username == "" {
		return l.app.token, nil
	}
	ctx, cancel := context.WithTimeout(ctx, l.timeout())
	defer cancel()
	r, err := l.client.Authenticate(ctx, cfg.Username, cfg.Password)
	if err != nil {
		return "", err
	}
	return r.Token, nil
}

// each calls f for all members at once.
func (l *looking) each(ctx context.Context, f func(ctx context.Context, i int, m *probe.Member)) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout())
	defer cancel()
	var wg sync.WaitGroup
	for i, m := range l.members {
		wg.Go(func() { f(ctx, i, m) })
	}
	wg.Wait()
}

// status asks one member for its own view.
func (l *looking) status(ctx context.Context, m *probe.Member) (*etcdserverpb.StatusResponse, error) {
	at, err := l.client.At(m.Endpoint)
	if err != nil {
		return nil, err
	}
	return at.Status(ctx)
}

// checkInterval refuses what makes no sense.
func (l *looking) checkInterval() error {
	if l.interval < leastInterval {
		return badArgs("--interval %v: at least %v", l.interval, leastInterval)
	}
	return nil
}

// follow shows a picture, and on a terminal, if it is to live, again and again until the user ends it. Elsewhere a
// picture is printed once.
func (l *looking) follow(ctx context.Context, live bool, picture func(ctx context.Context, width int, p screen.Paint) ([]string, error)) error {
	out := l.app.out
	paint := screen.NewPaint(out)
	width, _, terminal := screen.Size(out)
	if !live || !terminal {
		lines, err := picture(ctx, width, paint)
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
	err = l.redraw(ctx, s, picture, paint)
	err = errors.Join(err, s.Close())
	if ctx.Err() != nil {
		return errEnded
	}
	return err
}

// errEnded says that the user has ended what would have gone on for ever.
var errEnded = errors.New("ended")

func (l *looking) redraw(ctx context.Context, s *screen.Screen, picture func(ctx context.Context, width int, p screen.Paint) ([]string, error), paint screen.Paint) error {
	t := time.NewTicker(l.interval)
	defer t.Stop()
	for {
		width, _, _ := screen.Size(l.app.out)
		lines, err := picture(ctx, width, paint)
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

// formats checks that the output format is one of some.
func (a *app) formats(list ...show.Format) (show.Format, error) {
	p, err := a.printer()
	if err != nil {
		return "", err
	}
	if !slices.Contains(list, p.Format) {
		return "", &exit{exitBadFeature, &show.UnsupportedError{Format: p.Format}}
	}
	return p.Format, nil
}

// several prints a number of things.
func several(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// flow puts pieces on as few lines as the width allows, 0 for one line.
func flow(width int, pieces ...string) []string {
	const between = "  "
	var lines []string
	line := ""
	for _, p := range pieces {
		switch {
		case p == "":
		case line == "":
			line = p
		case width > 0 && len([]rune(line))+len(between)+len([]rune(p)) > width:
			lines = append(lines, line)
			line = p
		default:
			line += between + p
		}
	}
	if line != "" {
		lines = append(lines, line)
	}
	if width > 0 {
		for i := range lines {
			lines[i] = screen.Cut(lines[i], width)
		}
	}
	return lines
}

// shortError gives an error a line, without what a table has no room for.
func shortError(err error) string {
	var u *client.UnreachableError
	if errors.As(err, &u) && len(u.Errors) > 0 && u.Errors[0] != nil {
		err = u.Errors[0]
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}
