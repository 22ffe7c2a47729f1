package monitor

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/cli"
	"vigil/cmd/vigilctl/exit"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
	"vigil/cmd/vigilctl/survey"
	"vigil/internal/amount"
	"vigil/internal/health"
)

const topHelp = `Show the load of the members: which member is leader, how far the others lag, the
puts, ranges, transactions and watch events per second of each member, the latency of
its disk, and the size of its store. On a terminal the picture is redrawn every
--interval until q or Ctrl-C, and ? shows the keys that sort, select a member and show its
watchers and slow requests; elsewhere, and with --once, it is printed once.

  LAG       entries of the raft log that the member has still to apply
  PUT/S     puts per second that the member has applied, like every member; RANGE/S
            and TXN/S are the requests that it served, EVENT/S the events sent to
            watchers
  FSYNC     latency of writing the raft log to the disk: average / 99th percentile;
            COMMIT is the same for the store, APPLY for applying a write
  DB, USED  the size of the store, and the used share of its quota

Rates and latencies are those of the last interval; "-" if there was nothing in it.
Columns that do not fit are omitted.
The command works with members of etcd too.`

const topExample = `  vigilctl top --cluster
  vigilctl top --interval 500ms --endpoints a:2379,b:2379,c:2379
  vigilctl top --once
  vigilctl top -w json | jq '.members[].fsync_p99_seconds'`

// Top returns the command top.
func Top(env *cli.Env) *cobra.Command {
	t := topView{liveView: liveView{Survey: survey.Survey{Env: env}}}
	var once bool
	c := &cobra.Command{
		Use:     "top [options]",
		Short:   "Show the load of the members, redrawn regularly",
		Long:    topHelp,
		Example: topExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return exit.Usage("top takes no arguments, not %q", args)
			}
			p, err := env.Printer(show.Simple, show.JSON, show.YAML)
			if err == nil {
				err = t.checkInterval()
			}
			if err != nil {
				return err
			}
			return t.run(c, func(ctx context.Context) error {
				_, _, terminal := screen.Size(env.Stdout)
				live := p.Format == show.Simple && !once && terminal
				if !live {
					if err := t.readFirst(ctx); err != nil {
						return err
					}
				}
				if p.Format == show.Simple {
					if live {
						t.console = t.interact
					}
					return t.show(ctx, live, t.picture)
				}
				r, err := t.readNext(ctx)
				if err != nil {
					return err
				}
				return env.Print(show.Answer{Value: summarize(r, t.previous)})
			})
		},
	}
	t.addFlags(c)
	c.Flags().BoolVar(&once, "once", false, "print one picture, of one interval")
	return c
}

// topView keeps the previous round, for rates.
type topView struct {
	liveView
	last, previous *health.Round
}

// readFirst reads a first round and waits for an interval, so that the next round has rates.
func (t *topView) readFirst(ctx context.Context) error {
	if _, err := t.readNext(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(t.interval):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// readNext reads a round. It returns an error only if no member answers the first round.
func (t *topView) readNext(ctx context.Context) (*health.Round, error) {
	r := t.Read(ctx)
	return r, t.keepRound(r)
}

func (t *topView) picture(ctx context.Context, width int, p screen.Paint) ([]string, error) {
	r, err := t.readNext(ctx)
	if err != nil {
		return nil, err
	}
	return draw(r, t.previous, width, p), nil
}

// topMember is the JSON form of a member. Unknown fields are omitted.
type topMember struct {
	Endpoint   string   `json:"endpoint"`
	Name       string   `json:"name,omitempty"`
	ID         string   `json:"id,omitempty"`
	Role       string   `json:"role"`
	Error      string   `json:"error,omitempty"`
	Version    string   `json:"version,omitempty"`
	Lag        *int64   `json:"lag_entries,omitempty"`
	Puts       *float64 `json:"puts_per_second,omitempty"`
	Ranges     *float64 `json:"ranges_per_second,omitempty"`
	Txns       *float64 `json:"txns_per_second,omitempty"`
	Deletes    *float64 `json:"deletes_per_second,omitempty"`
	Events     *float64 `json:"watch_events_per_second,omitempty"`
	Watchers   *float64 `json:"watchers,omitempty"`
	FsyncMean  *float64 `json:"fsync_mean_seconds,omitempty"`
	Fsync50    *float64 `json:"fsync_p50_seconds,omitempty"`
	Fsync99    *float64 `json:"fsync_p99_seconds,omitempty"`
	ApplyMean  *float64 `json:"apply_mean_seconds,omitempty"`
	Apply50    *float64 `json:"apply_p50_seconds,omitempty"`
	Apply99    *float64 `json:"apply_p99_seconds,omitempty"`
	CommitMean *float64 `json:"commit_mean_seconds,omitempty"`
	Commit50   *float64 `json:"commit_p50_seconds,omitempty"`
	Commit99   *float64 `json:"commit_p99_seconds,omitempty"`
	DB         int64    `json:"db_bytes"`
	InUse      int64    `json:"db_in_use_bytes"`
	Quota      int64    `json:"quota_bytes"`
	Memory     *float64 `json:"resident_memory_bytes,omitempty"`
	OpenFiles  *float64 `json:"open_files,omitempty"`
}

// topSummary is the JSON form of a round.
type topSummary struct {
	ClusterID string      `json:"cluster_id"`
	Leader    string      `json:"leader"`
	Term      uint64      `json:"raft_term"`
	Revision  int64       `json:"revision"`
	Alarms    []string    `json:"alarms"`
	Members   []topMember `json:"members"`
}

// summarize returns the summary of a round, with rates since an older one.
func summarize(r, old *health.Round) *topSummary {
	id, term := r.Cluster()
	s := &topSummary{ClusterID: fmt.Sprintf("%x", id), Term: term, Revision: r.Revision(),
		Alarms: alarmTexts(r)}
	if leader := r.Leader(); leader != 0 {
		s.Leader = r.Name(leader)
	}
	for i := range r.Readings {
		s.Members = append(s.Members, summarizeMember(r, i, r.Before(old, i)))
	}
	return s
}

// orNil returns a pointer to a value, nil if the value is unknown.
func orNil[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}

func summarizeMember(r *health.Round, i int, old *health.Reading) topMember {
	x := &r.Readings[i]
	m := topMember{Endpoint: x.Endpoint, Role: x.Role(), Lag: orNil(r.Lag(x))}
	switch {
	case x.StatusErr != nil:
		m.Error = survey.ErrorLine(x.StatusErr)
	case x.MetricsErr != nil:
		m.Error = "metrics: " + survey.ErrorLine(x.MetricsErr)
	case r.Stranger(x):
		m.Error = "it was removed from the cluster, and runs"
	case x.FilesGone() != "":
		m.Error = "files of its data directory are gone, and it accepts no writes: " + x.FilesGone()
	default:
		if m.Error, _ = x.DiskFull(); m.Error == "" && x.Stands() {
			m.Error = "it does none of its work: its disk hangs, or a request takes very long"
		}
	}
	if id := cmp.Or(x.ID(), x.Advertised); id != 0 {
		m.Name, m.ID = r.Name(id), fmt.Sprintf("%x", id)
	}
	if x.Status != nil {
		m.Version = x.Status.Version
		m.DB, m.InUse, m.Quota = x.Status.DbSize, x.Status.DbSizeInUse, x.Quota()
	}
	for name, to := range map[string]**float64{health.Puts: &m.Puts, health.Ranges: &m.Ranges,
		health.Txns: &m.Txns, health.Deletes: &m.Deletes, health.Events: &m.Events} {
		*to = orNil(x.Rate(old, name))
	}
	for name, to := range map[string]**float64{health.Watchers: &m.Watchers,
		health.ResidentMemory: &m.Memory, health.OpenFiles: &m.OpenFiles} {
		*to = orNil(x.Metrics.Value(name))
	}
	setLatencies := func(h health.Histogram, mean, half, most **float64) {
		*mean, *half, *most = orNil(h.Mean()), orNil(h.Quantile(0.5)), orNil(h.Quantile(0.99))
	}
	setLatencies(x.Latency(old, health.WALFsync), &m.FsyncMean, &m.Fsync50, &m.Fsync99)
	setLatencies(x.Latency(old, health.Apply), &m.ApplyMean, &m.Apply50, &m.Apply99)
	setLatencies(x.Latency(old, health.StoreCommit), &m.CommitMean, &m.Commit50, &m.Commit99)
	return m
}

var topColumns = []screen.Column{
	{Title: "MEMBER", Least: 6},
	{Title: "ROLE"},
	{Title: "LAG", Right: true, Weight: 14},
	{Title: "PUT/S", Right: true, Weight: 13},
	{Title: "RANGE/S", Right: true, Weight: 11},
	{Title: "TXN/S", Right: true, Weight: 10},
	{Title: "EVENT/S", Right: true, Weight: 9},
	{Title: "FSYNC avg/99%", Right: true, Weight: 12},
	{Title: "APPLY avg/99%", Right: true, Weight: 7},
	{Title: "COMMIT avg/99%", Right: true, Weight: 6},
	{Title: "DB", Right: true, Weight: 5},
	{Title: "USED", Right: true, Weight: 8},
	{Title: "WATCHERS", Right: true, Weight: 4},
	{Title: "MEMORY", Right: true, Weight: 3},
	{Title: "VERSION", Weight: 2},
	{Title: "ENDPOINT", Weight: 1},
}

// row returns the line of a member.
func (m *topMember) row(quotaUsed int64) []string {
	rate := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return amount.Rate(*v)
	}
	times := func(mean, most *float64) string {
		if mean == nil || most == nil {
			return "-"
		}
		return amount.Seconds(*mean) + "/" + amount.Seconds(*most)
	}
	bytes := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return amount.Bytes(int64(*v))
	}
	lag, name, watchers := "-", m.Name, "-"
	if m.Lag != nil {
		lag = fmt.Sprint(*m.Lag)
	}
	if name == "" {
		name = m.Endpoint
	}
	if m.Watchers != nil {
		watchers = fmt.Sprintf("%.0f", *m.Watchers)
	}
	return []string{name, m.Role, lag, rate(m.Puts), rate(m.Ranges), rate(m.Txns), rate(m.Events),
		times(m.FsyncMean, m.Fsync99), times(m.ApplyMean, m.Apply99),
		times(m.CommitMean, m.Commit99), amount.Bytes(m.DB),
		amount.Percent(float64(quotaUsed), float64(m.Quota)), watchers, bytes(m.Memory),
		cmp.Or(m.Version, "-"), m.Endpoint}
}

// draw returns the lines of a round on the screen.
func draw(r, old *health.Round, width int, p screen.Paint) []string {
	return drawChosen(r, old, width, p, nil)
}

// drawChosen is draw for members in a chosen order, with a mark at the selected one. c may be nil.
func drawChosen(r, old *health.Round, width int, p screen.Paint, c *choice) []string {
	s := summarize(r, old)
	leader := "no leader"
	if s.Leader != "" {
		leader = "leader " + screen.Safe(s.Leader)
	}
	var puts, ranges, txns, events float64
	rates := false
	for _, m := range s.Members {
		// Every member applies every write: a sum would count each write several times.
		for _, x := range []struct {
			v   *float64
			sum *float64
		}{{m.Ranges, &ranges}, {m.Events, &events}} {
			if x.v != nil {
				*x.sum += *x.v
			}
		}
		if m.Puts != nil && m.Txns != nil {
			rates, puts, txns = true, max(puts, *m.Puts), max(txns, *m.Txns)
		}
	}
	order, keys := (&choice{}).sorted(s.Members), ""
	if c != nil {
		order, keys = c.sorted(s.Members), "sort "+memberOrders[c.order].name+"  ? help"
	}
	lines := screen.Flow(width, amount.Count(len(s.Members), "member"), leader,
		fmt.Sprintf("term %d", s.Term), fmt.Sprintf("revision %d", s.Revision),
		r.At.Format(time.TimeOnly), keys)
	if rates {
		lines = append(lines,
			screen.Flow(width, "a second:", amount.Rate(puts)+" puts",
				amount.Rate(ranges)+" ranges", amount.Rate(txns)+" txns",
				amount.Rate(events)+" watch events")...)
	}
	alarms := "no alarms"
	style := screen.Plain
	switch {
	case len(s.Alarms) > 0:
		alarms, style = "ALARMS: "+strings.Join(s.Alarms, ", "), screen.Bad
	case r.ListErr != nil && r.Answered():
		alarms, style = "no alarms; the members are not known: "+
			survey.ErrorLine(r.ListErr), screen.Warn
	case r.ListErr != nil:
		alarms, style = "alarms and members are not known: "+
			survey.ErrorLine(r.ListErr), screen.Warn
	}
	lines = append(lines, p.In(style, screen.SafeLine(width, alarms)), "")
	rows := make([][]string, len(s.Members))
	for at, i := range order {
		rows[at] = s.Members[i].row(r.Readings[i].QuotaUsed())
		switch {
		case c == nil:
		case c.selected == s.Members[i].Endpoint:
			rows[at][0] = "> " + rows[at][0]
		default:
			rows[at][0] = "  " + rows[at][0]
		}
	}
	table := screen.Table(width, topColumns, rows)
	lines = append(lines, p.In(screen.Bold, table[0]))
	for at, line := range table[1:] {
		style := screen.Plain
		switch s.Members[order[at]].Role {
		case "down", "no leader", "waits":
			style = screen.Bad
		case "leader":
			style = screen.Good
		}
		lines = append(lines, p.In(style, line))
	}
	for _, m := range s.Members {
		if m.Error != "" {
			name := m.Endpoint
			if m.Name != "" {
				name = m.Name + " (" + m.Endpoint + ")"
			}
			lines = append(lines, p.In(screen.Bad, screen.SafeLine(width, name+": "+m.Error)))
		}
	}
	return lines
}

// alarmTexts returns the alarms with the names of their members.
func alarmTexts(r *health.Round) []string {
	list := []string{}
	for _, a := range r.Alarms {
		text := a.Alarm.String()
		if a.MemberID != 0 { // otherwise the wrong member is unknown
			text += " on " + r.Name(a.MemberID)
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}
