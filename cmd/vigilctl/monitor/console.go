package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/survey"
	"vigil/internal/amount"
	"vigil/internal/health"
)

const consoleHelp = `q, Ctrl-C     quit
s, S          sort by the next field, by the one before
up, down      select a member (also k and j)
Enter         the watchers and slow requests of the selected member
Esc           back
?             these keys, and back

A member that does not answer is listed by its name, with the reason below the table.
FSYNC, APPLY, COMMIT: the average, which is exact, and the 99th percentile, which is
estimated from a histogram. They are those of the last interval if it has any.`

// memberOrders are the orders of members, each descending. The first is the order of the cluster.
var memberOrders = []struct {
	name  string
	value func(m *topMember) float64
}{
	{"name", nil},
	{"lag", func(m *topMember) float64 {
		if m.Lag == nil {
			return -1
		}
		return float64(*m.Lag)
	}},
	{"puts", func(m *topMember) float64 { return orLeast(m.Puts) }},
	{"ranges", func(m *topMember) float64 { return orLeast(m.Ranges) }},
	{"fsync", func(m *topMember) float64 { return orLeast(m.Fsync99) }},
	{"watchers", func(m *topMember) float64 { return orLeast(m.Watchers) }},
	{"size", func(m *topMember) float64 { return float64(m.DB) }},
}

func orLeast(v *float64) float64 {
	if v == nil {
		return -1
	}
	return *v
}

// choice is what the user has chosen to see.
type choice struct {
	order    int    // index in memberOrders
	selected string // an endpoint
	detail   bool   // one member instead of all
	help     bool
}

// sorted returns the indexes of members in an order.
func (c *choice) sorted(list []topMember) []int {
	out := make([]int, len(list))
	for i := range out {
		out[i] = i
	}
	if value := memberOrders[c.order].value; value != nil {
		slices.SortStableFunc(out,
			func(a, b int) int { return cmp.Compare(value(&list[b]), value(&list[a])) })
	}
	return out
}

// handleKey handles a key. order has the endpoints as they are shown. It reports whether to quit.
func (c *choice) handleKey(k screen.Key, order []string) (quit bool) {
	at := slices.Index(order, c.selected)
	move := func(by int) {
		if len(order) > 0 {
			c.selected = order[min(max(at+by, 0), len(order)-1)]
		}
	}
	switch k {
	case "q", screen.Break:
		return true
	case "?":
		c.help = !c.help
	case screen.Back:
		c.help, c.detail = false, false
	case "s":
		c.order = (c.order + 1) % len(memberOrders)
	case "S":
		c.order = (c.order + len(memberOrders) - 1) % len(memberOrders)
	case screen.Up, "k":
		move(-1)
	case screen.Down, "j":
		move(1)
	case screen.Enter:
		c.detail = c.selected != "" && !c.help
	}
	return false
}

// reading is the result of one look at the members.
type reading struct {
	round    *health.Round
	of       string // the member that watchers belong to
	watchers *watcherList
	err      error
}

// interact shows the members until the user quits. It is like redraw, with keys.
func (t *topView) interact(ctx context.Context, s *screen.Screen, keys <-chan screen.Key,
	paint screen.Paint) error {
	var c choice
	var last reading
	answers := make(chan reading, 1)
	reading := false
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		cancel()
		if reading {
			<-answers // it uses the connections, which close next
		}
	}()
	look := func() {
		if reading {
			return // the members have not answered yet
		}
		reading = true
		of := ""
		if c.detail {
			of = c.selected
		}
		go func() { answers <- t.readMembers(ctx, of) }()
	}
	look()
	tick := time.NewTicker(t.interval)
	defer tick.Stop()
	for {
		select {
		case last = <-answers:
			reading = false
			if err := t.keepRound(last.round); err != nil {
				return err
			}
			if c.selected == "" && len(last.round.Readings) > 0 {
				c.selected = last.round.Readings[0].Endpoint
			}
		case <-tick.C:
			look()
			continue
		case k := <-keys:
			var order []string
			if t.last != nil {
				list := summarize(t.last, t.previous).Members
				for _, i := range c.sorted(list) {
					order = append(order, list[i].Endpoint)
				}
			}
			if c.handleKey(k, order) {
				return nil
			}
			if c.detail && last.of != c.selected {
				look()
			}
		case <-ctx.Done():
			return nil
		}
		if t.last == nil {
			continue
		}
		width, _, _ := screen.Size(t.Env.Stdout)
		if err := s.Draw(t.view(&c, &last, width, paint)); err != nil {
			return err
		}
	}
}

// readMembers asks all members, and one of them for its watchers.
func (t *topView) readMembers(ctx context.Context, of string) reading {
	r := reading{round: t.Read(ctx), of: of}
	if i := slices.IndexFunc(t.Members,
		func(m *probe.Member) bool { return m.Endpoint == of }); i >= 0 {
		one := watchersView{liveView: liveView{Survey: survey.Survey{Env: t.Env, Client: t.Client,
			Members: t.Members[i : i+1]}}, sort: "lag", limit: 500}
		r.watchers, r.err = one.collect(ctx)
	}
	return r
}

// view returns the lines for the current choice.
func (t *topView) view(c *choice, last *reading, width int, p screen.Paint) []string {
	if c.help {
		var lines []string
		for _, l := range splitLines(consoleHelp) {
			lines = append(lines, screen.Cut(l, width))
		}
		return lines
	}
	if i := slices.IndexFunc(t.last.Readings,
		func(x health.Reading) bool { return x.Endpoint == c.selected }); c.detail && i >= 0 {
		return drawMember(t.last, t.previous, i, last, width, p)
	}
	return drawChosen(t.last, t.previous, width, p, c)
}

// drawMember returns the lines for one member.
func drawMember(r, old *health.Round, i int, last *reading, width int, p screen.Paint) []string {
	x, before := &r.Readings[i], r.Before(old, i)
	m := summarizeMember(r, i, before)
	lines := screen.Flow(width, p.In(screen.Bold, screen.Safe(cmp.Or(m.Name, m.Endpoint))),
		screen.Safe(m.Endpoint), m.Role, screen.Safe(m.Version), "Esc goes back")
	if m.Error != "" {
		lines = append(lines, p.In(screen.Bad, screen.SafeLine(width, m.Error)))
	}
	for _, slow := range []struct{ metric, what string }{
		{health.SlowApplies, "writes were applied slowly"},
		{health.SlowReads, "reads waited long for the leader"},
		{health.PendingProposals, "writes wait now"},
		{health.SlowWatchers, "watchers are not live"},
	} {
		v, ok := x.Metrics.Value(slow.metric)
		if !ok {
			continue
		}
		text := fmt.Sprintf("%8.0f  %s", v, slow.what)
		if rate, ok := x.Rate(before, slow.metric); ok && rate > 0 &&
			slow.metric != health.PendingProposals && slow.metric != health.SlowWatchers {
			text += ", " + amount.Rate(rate) + " a second"
		}
		lines = append(lines, screen.Cut(text, width))
	}
	lines = append(lines, "")
	switch {
	case last.of != x.Endpoint:
		return append(lines, "reading its watchers …")
	case last.err != nil:
		return append(lines,
			p.In(screen.Warn, screen.SafeLine(width,
				"its watchers are not known: "+survey.ErrorLine(last.err))))
	case last.watchers == nil:
		return lines
	}
	return append(lines, last.watchers.draw(width, time.Now(), p)...)
}

// keepRound stores a round. It returns an error only if no member answers the first round.
func (t *topView) keepRound(r *health.Round) error {
	if t.last == nil && !r.Answered() {
		if len(r.Readings) == 0 {
			return errors.New("no member advertises an address for clients: give --endpoints")
		}
		return r.Readings[0].StatusErr
	}
	t.previous, t.last = t.last, r
	return nil
}
