package monitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/client"
	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/command"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/keytext"
	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
	"vigil/cmd/vigilctl/survey"
	"vigil/internal/amount"
	"vigil/internal/debugpage"
)

const watchersHelp = `Show each watcher of each member with its client's address and user, the keys it
watches, and how far it lags.

STATE is live (receives events as they happen), behind (reads missed events from the
history), stalled (its client does not read, so no more events are sent) or future
(waits for a later revision). LAG is the number of revisions that it has not received,
QUEUED the bytes that wait for its client, SENT the events sent to it.

With PREFIX only watchers of keys with this prefix are shown, including those of a
range that contains such keys. The members are those of --endpoints, or with --cluster
all. On a terminal --live redraws the picture until Ctrl-C; columns that do not fit are
omitted, and -w json has all fields.

The command needs members of Vigil: etcd does not list its watchers. With auth enabled
it needs --user with the role root.`

const watchersExample = `  vigilctl watchers --cluster
  vigilctl watchers /registry/pods/ --sort queued --limit 20
  vigilctl watchers --live --interval 1s
  vigilctl watchers -w json | jq '.watchers[] | select(.lag_revisions > 1000)'`

// watched is one watcher and the member that serves it.
type watched struct {
	Member string `json:"member"`
	debugpage.Watcher
}

// watcherOrders are the values of --sort. Numbers sort in descending order, ages from the oldest.
var watcherOrders = map[string]func(a, b watched) int{
	"lag":    func(a, b watched) int { return cmp.Compare(b.Lag, a.Lag) },
	"queued": func(a, b watched) int { return cmp.Compare(b.QueuedBytes, a.QueuedBytes) },
	"sent":   func(a, b watched) int { return cmp.Compare(b.DeliveredCount, a.DeliveredCount) },
	"age":    func(a, b watched) int { return a.Created.Compare(b.Created) },
	"client": func(a, b watched) int { return cmp.Compare(a.Client, b.Client) },
	"user":   func(a, b watched) int { return cmp.Compare(a.User, b.User) },
	"key":    func(a, b watched) int { return cmp.Compare(a.Key, b.Key) },
	"state":  func(a, b watched) int { return cmp.Compare(a.State, b.State) },
	"member": func(a, b watched) int { return cmp.Compare(a.Member, b.Member) },
}

func orderNames() []string { return slices.Sorted(maps.Keys(watcherOrders)) }

// Watchers returns the command watchers.
func Watchers(env *cli.Env) *cobra.Command {
	w := watchersView{liveView: liveView{Survey: survey.Survey{Env: env}}}
	c := &cobra.Command{
		Use:     "watchers [options] [prefix]",
		Short:   "Show the watchers of members, and how far they lag",
		Long:    watchersHelp,
		Example: watchersExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return exit.Usage("watchers takes one prefix, not %d arguments", len(args))
			}
			if len(args) == 1 {
				w.prefix = args[0]
			}
			return w.runView(c)
		},
	}
	w.addFlags(c)
	c.Flags().StringVar(&w.sort, "sort", "lag",
		"order by `FIELD`: "+strings.Join(orderNames(), ", "))
	c.Flags().IntVar(&w.limit, "limit", 0, "the largest number of watchers to show; 0 is all")
	c.Flags().BoolVar(&w.live, "live", false, "on a terminal, redraw until Ctrl-C")
	command.CompleteFlag(c, "sort", orderNames())
	return c
}

// watchersView shows watchers.
type watchersView struct {
	liveView
	prefix, sort string
	limit        int
	live         bool
}

// watcherList has the watchers of all members.
type watcherList struct {
	Members  int            `json:"members"`
	Streams  int            `json:"streams"`
	Matching int            `json:"matching"`
	Watchers []watched      `json:"watchers"`
	Failed   []failedMember `json:"failed,omitempty"`
}

// failedMember is a member that did not answer.
type failedMember struct {
	Member string `json:"member"`
	Reason string `json:"reason"`
}

func (w *watchersView) runView(c *cobra.Command) error {
	p, err := w.Env.Printer(show.Simple, show.Table, show.JSON, show.YAML)
	if err != nil {
		return err
	}
	if watcherOrders[w.sort] == nil {
		return exit.Usage("--sort %q: one of %s", w.sort, strings.Join(orderNames(), ", "))
	}
	if w.limit < 0 {
		return exit.Usage("--limit %d: it cannot be negative", w.limit)
	}
	if err := w.checkInterval(); err != nil {
		return err
	}
	if w.live && p.Format != show.Simple {
		return exit.Usage("--live cannot be used with -w %s", p.Format)
	}
	return w.run(c, func(ctx context.Context) error {
		if p.Format == show.Simple {
			return w.show(ctx, w.live, w.picture)
		}
		list, err := w.collect(ctx)
		if err != nil {
			return err
		}
		return w.Env.Print(show.Answer{Value: list,
			Table: func() ([]string, [][]string) { return list.table(time.Now()) }})
	})
}

// collect queries all members. It returns an error only if no member answers.
func (w *watchersView) collect(ctx context.Context) (*watcherList, error) {
	answers := make([]*debugpage.Watchers, len(w.Members))
	errs := make([]error, len(w.Members))
	w.Each(ctx, func(ctx context.Context, i int, m *probe.Member) {
		answers[i],
			errs[i] = m.Watchers(ctx)
	})
	list := &watcherList{Watchers: []watched{}}
	for i, m := range w.Members {
		switch {
		case errors.Is(errs[i], probe.ErrNotFound):
			list.Failed = append(list.Failed,
				failedMember{m.Endpoint,
					"the member is an etcd, which does not list its watchers; this needs Vigil"})
		case errs[i] != nil:
			list.Failed = append(list.Failed,
				failedMember{m.Endpoint, survey.ErrorLine(cli.Refused(errs[i], w.NoLogin))})
		default:
			list.Members++
			list.Streams += answers[i].Streams
			for _, x := range answers[i].Watchers {
				if watches(x, w.prefix) {
					list.Watchers = append(list.Watchers, watched{m.Endpoint, x})
				}
			}
		}
	}
	if list.Members == 0 && len(list.Failed) > 0 {
		f := list.Failed[0]
		return nil, fmt.Errorf("%s: %s", f.Member, f.Reason)
	}
	list.Matching = len(list.Watchers)
	slices.SortStableFunc(list.Watchers, func(a, b watched) int {
		return cmp.Or(watcherOrders[w.sort](a, b), cmp.Compare(a.Member, b.Member),
			cmp.Compare(a.Stream, b.Stream), cmp.Compare(a.Watcher.Watcher, b.Watcher.Watcher))
	})
	if w.limit > 0 && len(list.Watchers) > w.limit {
		list.Watchers = list.Watchers[:w.limit]
	}
	return list, nil
}

// watches reports whether a watcher's range contains keys with the prefix.
func watches(x debugpage.Watcher, prefix string) bool {
	key, end := unquote(x.Key), unquote(x.End)
	switch end {
	case "":
		return strings.HasPrefix(key, prefix)
	case "\x00": // from key on
		return client.PrefixEnd(prefix) == "\x00" || key < client.PrefixEnd(prefix)
	}
	last := client.PrefixEnd(prefix)
	return end > prefix && (last == "\x00" || key < last)
}

// unquote returns the bytes of a key that a member has quoted.
func unquote(s string) string {
	if k, err := strconv.Unquote(s); err == nil {
		return k
	}
	return s
}

// describeRange returns the keys of a watcher as text.
func describeRange(x debugpage.Watcher) string {
	key, end := unquote(x.Key), unquote(x.End)
	switch {
	case end == "":
		return keytext.Quote(key)
	case (key == "" || key == "\x00") && end == "\x00":
		return "(all keys)"
	case end == "\x00":
		return keytext.Quote(key) + " and after"
	case client.PrefixEnd(key) == end:
		return keytext.Quote(key) + "*"
	}
	return keytext.Quote(key) + " to " + keytext.Quote(end)
}

var watcherColumns = []screen.Column{
	{Title: "WATCHES", Least: 12},
	{Title: "STATE"},
	{Title: "LAG", Right: true},
	{Title: "QUEUED", Right: true, Weight: 9},
	{Title: "SENT", Right: true, Weight: 6},
	{Title: "CLIENT", Weight: 8},
	{Title: "USER", Weight: 5},
	{Title: "MEMBER", Weight: 4},
	{Title: "AGE", Right: true, Weight: 3},
	{Title: "OPTIONS", Weight: 2},
	{Title: "NEXT", Right: true, Weight: 1},
}

// row returns the table row of a watcher.
func (x watched) row(now time.Time) []string {
	return []string{describeRange(x.Watcher), x.State, strconv.FormatInt(x.Lag, 10),
		amount.Bytes(x.QueuedBytes), strconv.FormatInt(x.DeliveredCount, 10), x.Client,
		cmp.Or(x.User, "-"),
		x.Member, amount.Age(now.Sub(x.Created)), cmp.Or(strings.Join(x.Options, ","), "-"),
		strconv.FormatInt(x.NextRevision, 10)}
}

func (l *watcherList) table(now time.Time) (heading []string, rows [][]string) {
	for _, c := range watcherColumns {
		heading = append(heading, c.Title)
	}
	for _, x := range l.Watchers {
		row := x.row(now)
		for i := range row {
			row[i] = screen.Safe(row[i])
		}
		rows = append(rows, row)
	}
	return heading, rows
}

func (w *watchersView) picture(ctx context.Context, width int, p screen.Paint) ([]string, error) {
	list, err := w.collect(ctx)
	if err != nil {
		return nil, err
	}
	return list.draw(width, time.Now(), p), nil
}

func (l *watcherList) draw(width int, now time.Time, p screen.Paint) []string {
	lag, queued := int64(0), int64(0)
	for _, x := range l.Watchers {
		lag, queued = max(lag, x.Lag), queued+x.QueuedBytes
	}
	shown := amount.Count(l.Matching, "watcher")
	if len(l.Watchers) < l.Matching {
		shown = fmt.Sprintf("%d of %s", len(l.Watchers), shown)
	}
	lines := screen.Flow(width, shown, amount.Count(l.Streams, "stream"),
		amount.Count(l.Members, "member"),
		fmt.Sprintf("largest lag %d", lag), "queued "+amount.Bytes(queued))
	for _, f := range l.Failed {
		lines = append(lines, p.In(screen.Bad, screen.SafeLine(width, f.Member+": "+f.Reason)))
	}
	if len(l.Watchers) == 0 {
		return lines
	}
	rows := make([][]string, len(l.Watchers))
	for i, x := range l.Watchers {
		rows[i] = x.row(now)
	}
	table := screen.Table(width, watcherColumns, rows)
	lines = append(lines, "", p.In(screen.Bold, table[0]))
	for i, line := range table[1:] {
		style := screen.Plain
		switch l.Watchers[i].State {
		case "stalled":
			style = screen.Bad
		case "behind":
			style = screen.Warn
		}
		lines = append(lines, p.In(style, line))
	}
	return lines
}
