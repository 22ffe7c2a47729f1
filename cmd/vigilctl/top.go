package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"vigil/cmd/vigilctl/probe"
	"vigil/cmd/vigilctl/screen"
	"vigil/cmd/vigilctl/show"
)

const topHelp = `Show what the members are doing: who leads, how far the others are behind, how many
puts, ranges, transactions and watch events a second each has, how long its disk
takes, and how full it is. On a terminal the picture is drawn again every
--interval until Ctrl-C; elsewhere, and with --once, it is printed once.

  LAG       entries of the raft log that the member has still to apply
  PUT/S     puts a second that the member has applied, as every member does; RANGE/S
            and TXN/S likewise what it has done, EVENT/S the events sent to watchers
  FSYNC     how long the raft log takes to reach the disk: half of the times were
            below the first number, 99 of 100 below the second; COMMIT is the same for
            the store, APPLY for carrying out a write
  DB, USED  the size of the store, and how much of its quota that is

Rates and times are those of the last interval, times those since the start of the
member if nothing has happened meanwhile. Columns that do not fit are left out. All
of it works with members of etcd too.`

const topExample = `  vigilctl top --cluster
  vigilctl top --interval 500ms --endpoints a:2379,b:2379,c:2379
  vigilctl top --once
  vigilctl top -w json | jq '.members[].fsync_p99_seconds'`

func (a *app) topCommand() *cobra.Command {
	t := topView{looking: looking{app: a}}
	var once bool
	c := &cobra.Command{
		Use:     "top [options]",
		Short:   "Show what the members are doing, drawn again and again",
		Long:    topHelp,
		Example: topExample,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return badArgs("top takes no arguments, not %q", args)
			}
			format, err := a.formats(show.Simple, show.JSON)
			if err == nil {
				err = t.checkInterval()
			}
			if err != nil {
				return err
			}
			return t.run(c, func(ctx context.Context) error {
				_, _, terminal := screen.Size(a.out)
				live := format == show.Simple && !once && terminal
				if !live {
					if err := t.settle(ctx); err != nil {
						return err
					}
				}
				if format == show.Simple {
					return t.follow(ctx, live, t.picture)
				}
				r, err := t.next(ctx)
				if err != nil {
					return err
				}
				return a.print(show.Answer{Value: r.summary(t.previous)})
			})
		},
	}
	t.addTo(c)
	t.addInterval(c)
	c.Flags().BoolVar(&once, "once", false, "print one picture, of what happens in one interval")
	return c
}

// topView keeps the round before, for rates.
type topView struct {
	looking
	last, previous *round
}

// settle makes a first round, so that the next one has rates.
func (t *topView) settle(ctx context.Context) error {
	if _, err := t.next(ctx); err != nil {
		return err
	}
	select {
	case <-time.After(t.interval):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// next makes a round. It fails only if no member has answered the first time.
func (t *topView) next(ctx context.Context) (*round, error) {
	r := t.read(ctx)
	if t.last == nil && !slices.ContainsFunc(r.readings, func(x reading) bool { return x.status != nil }) {
		if len(r.readings) == 0 {
			return nil, errors.New("no member advertises an address for clients: give --endpoints")
		}
		return nil, r.readings[0].statusErr
	}
	t.previous, t.last = t.last, r
	return r, nil
}

func (t *topView) picture(ctx context.Context, width int, p screen.Paint) ([]string, error) {
	r, err := t.next(ctx)
	if err != nil {
		return nil, err
	}
	return r.draw(t.previous, width, p), nil
}

// topMember is a member for programs. What is not known is left out.
type topMember struct {
	Endpoint  string   `json:"endpoint"`
	Name      string   `json:"name,omitempty"`
	ID        string   `json:"id,omitempty"`
	Role      string   `json:"role"`
	Error     string   `json:"error,omitempty"`
	Version   string   `json:"version,omitempty"`
	Lag       *int64   `json:"lag_entries,omitempty"`
	Puts      *float64 `json:"puts_per_second,omitempty"`
	Ranges    *float64 `json:"ranges_per_second,omitempty"`
	Txns      *float64 `json:"txns_per_second,omitempty"`
	Deletes   *float64 `json:"deletes_per_second,omitempty"`
	Events    *float64 `json:"watch_events_per_second,omitempty"`
	Watchers  *float64 `json:"watchers,omitempty"`
	Fsync50   *float64 `json:"fsync_p50_seconds,omitempty"`
	Fsync99   *float64 `json:"fsync_p99_seconds,omitempty"`
	Apply50   *float64 `json:"apply_p50_seconds,omitempty"`
	Apply99   *float64 `json:"apply_p99_seconds,omitempty"`
	Commit50  *float64 `json:"commit_p50_seconds,omitempty"`
	Commit99  *float64 `json:"commit_p99_seconds,omitempty"`
	DB        int64    `json:"db_bytes"`
	InUse     int64    `json:"db_in_use_bytes"`
	Quota     int64    `json:"quota_bytes"`
	Memory    *float64 `json:"resident_memory_bytes,omitempty"`
	OpenFiles *float64 `json:"open_files,omitempty"`
}

// topSummary is a round for programs.
type topSummary struct {
	ClusterID string      `json:"cluster_id"`
	Leader    string      `json:"leader"`
	Term      uint64      `json:"raft_term"`
	Revision  int64       `json:"revision"`
	Alarms    []string    `json:"alarms"`
	Members   []topMember `json:"members"`
}

// cluster returns the cluster's id and the term, as the members that answered say.
func (r *round) cluster() (id uint64, term uint64) {
	for i := range r.readings {
		if h := r.readings[i].status.GetHeader(); h != nil {
			id, term = h.ClusterId, max(term, h.RaftTerm)
		}
	}
	return id, term
}

// before returns the reading of the same endpoint in an older round, nil if there is none.
func (r *round) before(old *round, i int) *reading {
	if old == nil || i >= len(old.readings) || old.readings[i].endpoint != r.readings[i].endpoint || old.readings[i].metrics == nil {
		return nil
	}
	return &old.readings[i]
}

// summary is what is known of a round.
func (r *round) summary(old *round) *topSummary {
	id, term := r.cluster()
	s := &topSummary{ClusterID: fmt.Sprintf("%x", id), Term: term, Revision: r.revision(), Alarms: r.alarmTexts()}
	if s.Alarms == nil {
		s.Alarms = []string{}
	}
	if leader := r.leader(); leader != 0 {
		s.Leader = r.name(leader)
	}
	for i := range r.readings {
		s.Members = append(s.Members, r.member(i, r.before(old, i)))
	}
	return s
}

// known returns what is known.
func known[T any](v T, ok bool) *T {
	if !ok {
		return nil
	}
	return &v
}

func (r *round) member(i int, old *reading) topMember {
	x := &r.readings[i]
	m := topMember{Endpoint: x.endpoint, Role: x.role(), Lag: known(r.lag(x))}
	switch {
	case x.statusErr != nil:
		m.Error = shortError(x.statusErr)
	case x.metricsErr != nil:
		m.Error = "metrics: " + shortError(x.metricsErr)
	}
	if x.status != nil {
		m.Name, m.ID, m.Version = r.name(x.id()), fmt.Sprintf("%x", x.id()), x.status.Version
		m.DB, m.InUse, m.Quota = x.status.DbSize, x.status.DbSizeInUse, x.status.DbSizeQuota
		if m.Quota == 0 { // older than 3.6
			m.Quota = int64(x.value("etcd_server_quota_backend_bytes"))
		}
	}
	for name, to := range map[string]**float64{metricPuts: &m.Puts, metricRanges: &m.Ranges, metricTxns: &m.Txns, metricDeletes: &m.Deletes, metricEvents: &m.Events} {
		*to = known(x.rate(old, name))
	}
	for name, to := range map[string]**float64{metricWatchers: &m.Watchers, metricMemory: &m.Memory, metricFiles: &m.OpenFiles} {
		*to = known(x.metrics.Value(name))
	}
	both := func(h probe.Histogram, half, most **float64) {
		*half, *most = known(h.Quantile(0.5)), known(h.Quantile(0.99))
	}
	both(x.latency(old, metricFsync), &m.Fsync50, &m.Fsync99)
	both(x.latency(old, metricApply), &m.Apply50, &m.Apply99)
	both(x.latency(old, metricCommit), &m.Commit50, &m.Commit99)
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
	{Title: "FSYNC 50/99%", Right: true, Weight: 12},
	{Title: "APPLY 50/99%", Right: true, Weight: 7},
	{Title: "COMMIT 50/99%", Right: true, Weight: 6},
	{Title: "DB", Right: true, Weight: 5},
	{Title: "USED", Right: true, Weight: 8},
	{Title: "WATCHERS", Right: true, Weight: 4},
	{Title: "MEMORY", Right: true, Weight: 3},
	{Title: "VERSION", Weight: 2},
	{Title: "ENDPOINT", Weight: 1},
}

// row is the line of a member.
func (m *topMember) row(vigil bool) []string {
	rate := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return perSecond(*v)
	}
	times := func(half, most *float64) string {
		if half == nil || most == nil {
			return "-"
		}
		return seconds(*half) + "/" + seconds(*most)
	}
	bytes := func(v *float64) string {
		if v == nil {
			return "-"
		}
		return size(int64(*v))
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
	return []string{name, m.Role, lag, rate(m.Puts), rate(m.Ranges), rate(m.Txns), rate(m.Events), times(m.Fsync50, m.Fsync99), times(m.Apply50, m.Apply99),
		times(m.Commit50, m.Commit99), size(m.DB), percent(float64(m.counted(vigil)), float64(m.Quota)), watchers, bytes(m.Memory), dashText(m.Version), m.Endpoint}
}

// counted is what the quota is held against: with Vigil live data, with etcd the file.
func (m *topMember) counted(vigil bool) int64 {
	if vigil {
		return m.InUse
	}
	return m.DB
}

// draw lays a round out.
func (r *round) draw(old *round, width int, p screen.Paint) []string {
	s := r.summary(old)
	leader := "no leader"
	if s.Leader != "" {
		leader = "leader " + s.Leader
	}
	var puts, ranges, txns, events float64
	rates := false
	for _, m := range s.Members {
		// Every member applies every write: the sum would count them several times.
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
	lines := flow(width, several(len(s.Members), "member"), leader, fmt.Sprintf("term %d", s.Term), fmt.Sprintf("revision %d", s.Revision), r.at.Format(time.TimeOnly))
	if rates {
		lines = append(lines, flow(width, "a second:", perSecond(puts)+" puts", perSecond(ranges)+" ranges", perSecond(txns)+" txns", perSecond(events)+" watch events")...)
	}
	alarms := "no alarms"
	style := screen.Plain
	switch {
	case len(s.Alarms) > 0:
		alarms, style = "ALARMS: "+strings.Join(s.Alarms, ", "), screen.Bad
	case r.listErr != nil:
		alarms, style = "alarms and members are not known: "+shortError(r.listErr), screen.Warn
	}
	lines = append(lines, p.In(style, cutLine(width, alarms)), "")
	rows := make([][]string, len(s.Members))
	for i := range s.Members {
		rows[i] = s.Members[i].row(r.readings[i].isVigil())
	}
	table := screen.Table(width, topColumns, rows)
	lines = append(lines, p.In(screen.Bold, table[0]))
	for i, line := range table[1:] {
		style := screen.Plain
		switch s.Members[i].Role {
		case "down", "no leader":
			style = screen.Bad
		case "leader":
			style = screen.Good
		}
		lines = append(lines, p.In(style, line))
	}
	for _, m := range s.Members {
		if m.Error != "" {
			lines = append(lines, p.In(screen.Bad, cutLine(width, m.Endpoint+": "+m.Error)))
		}
	}
	return lines
}
