package alerts

import (
	"cmp"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/util/annotations"
)

// folder has all files for monitoring, relative to this package.
const folder = "../../packaging/monitoring"

var exprs = parser.NewParser(parser.Options{})

// readRules reads the rules as Prometheus does when it starts.
var readRules = sync.OnceValues(func() (*rulefmt.RuleGroups, []error) {
	return rulefmt.ParseFile(filepath.Join(folder, "rules.yaml"), false, model.UTF8Validation,
		exprs, slog.New(slog.DiscardHandler))
})

func loadRules(t testing.TB) []rulefmt.Rule {
	t.Helper()
	groups, errs := readRules()
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	// the members of one group are evaluated in their order, as evaluate does
	if len(groups.Groups) != 1 {
		t.Fatal("the rules are in several groups")
	}
	return groups.Groups[0].Rules
}

// stale ends a series.
var stale = math.Float64frombits(value.StaleNaN)

// memory holds the samples of a test by the names of series, as Prometheus' storage does. It is not
// safe for concurrent use.
type memory map[string]map[string]*promql.Series

func (m memory) add(l labels.Labels, at time.Time, v float64) {
	name, key := l.Get(model.MetricNameLabel), l.String()
	if m[name] == nil {
		m[name] = map[string]*promql.Series{}
	}
	s := m[name][key]
	if s == nil {
		s = &promql.Series{Metric: l}
		m[name][key] = s
	}
	if n := len(s.Floats); n > 0 && s.Floats[n-1].T >= at.UnixMilli() {
		panic(key + " has two samples of one time, or its samples are not in order")
	}
	s.Floats = append(s.Floats, promql.FPoint{T: at.UnixMilli(), F: v})
}

// all returns all series.
func (m memory) all() (list []*promql.Series) {
	for _, byLabels := range m {
		list = slices.AppendSeq(list, maps.Values(byLabels))
	}
	return list
}

// Querier implements storage.Queryable.
func (m memory) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, hints *storage.SelectHints,
		want ...*labels.Matcher) storage.SeriesSet {
		found := &found{at: -1}
		if hints != nil {
			from, to = hints.Start, hints.End
		}
		for _, w := range want {
			if w.Name == model.MetricNameLabel && w.Type == labels.MatchEqual {
				found.series = m.find(w.Value, want, from, to)
			}
		}
		return found
	}}, nil
}

// find returns the samples of a time range of the series of a name.
func (m memory) find(name string, want []*labels.Matcher, from,
	to int64) (list []*promql.StorageSeries) {
	for _, s := range m[name] {
		if slices.ContainsFunc(want,
			func(w *labels.Matcher) bool { return !w.Matches(s.Metric.Get(w.Name)) }) {
			continue
		}
		first, _ := slices.BinarySearchFunc(s.Floats, from,
			func(p promql.FPoint, t int64) int { return cmp.Compare(p.T, t) })
		end, _ := slices.BinarySearchFunc(s.Floats, to+1,
			func(p promql.FPoint, t int64) int { return cmp.Compare(p.T, t) })
		list = append(list, promql.NewStorageSeries(promql.Series{Metric: s.Metric,
			Floats: s.Floats[first:end]}))
	}
	return list
}

// found is the series that matched.
type found struct {
	series []*promql.StorageSeries
	at     int
}

func (f *found) Next() bool                        { f.at++; return f.at < len(f.series) }
func (f *found) At() storage.Series                { return f.series[f.at] }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }

// alert is an alert with one set of labels.
type alert struct {
	name        string
	labels      labels.Labels
	annotations map[string]string
	firing      bool
}

// prometheus evaluates rules over a memory.
type prometheus struct {
	t      testing.TB
	engine *promql.Engine
	rules  []rulefmt.Rule
	memory memory
	active []*alert
	began  time.Time
}

func newPrometheus(t testing.TB) *prometheus {
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: exprs})
	t.Cleanup(func() { engine.Close() })
	return &prometheus{t: t, engine: engine, rules: loadRules(t), memory: memory{},
		began: time.Now()}
}

// step is the interval at which rules are evaluated.
const step = time.Minute

// query returns the values of an expression at each step.
func (p *prometheus) query(expr string, from, to time.Time) (promql.Matrix, error) {
	q, err := p.engine.NewRangeQuery(p.t.Context(), p.memory, nil, expr, from, to, step)
	if err != nil {
		return nil, err
	}
	res := q.Exec(p.t.Context())
	if res.Err != nil {
		return nil, res.Err
	}
	m, err := res.Matrix()
	out := make(promql.Matrix, len(m)) // the query's memory is used again
	for i, s := range m {
		out[i] = promql.Series{Metric: s.Metric, Floats: slices.Clone(s.Floats)}
	}
	q.Close()
	return out, err
}

// evaluate evaluates all rules in their order, each at all steps: a rule depends on those before it
// only.
func (p *prometheus) evaluate(from, to time.Time) {
	p.t.Helper()
	p.active = nil
	for i := range p.rules {
		r := &p.rules[i]
		result, err := p.query(r.Expr, from, to)
		if err != nil {
			p.t.Fatalf("%s%s: %v", r.Record, r.Alert, err)
		}
		for _, s := range result {
			if r.Alert != "" {
				p.raise(r, s, to)
			} else {
				p.record(r, s, to)
			}
		}
		// what an earlier evaluation has recorded and this one has not
		for _, s := range p.memory[r.Record] {
			if last := s.Floats[len(s.Floats)-1]; last.T < to.UnixMilli() &&
				!value.IsStaleNaN(last.F) {
				p.memory.add(s.Metric, to, stale)
			}
		}
	}
}

// record stores what a rule returned. A series ends where the rule does not return it any more.
func (p *prometheus) record(r *rulefmt.Rule, s promql.Series, to time.Time) {
	b := labels.NewBuilder(s.Metric).Set(model.MetricNameLabel, r.Record)
	for name, text := range r.Labels {
		b.Set(name, text)
	}
	for i, f := range s.Floats {
		at := time.UnixMilli(f.T)
		p.memory.add(b.Labels(), at, f.F)
		if next := at.Add(step); !next.After(to) &&
			(i+1 == len(s.Floats) || s.Floats[i+1].T > next.UnixMilli()) {
			p.memory.add(b.Labels(), next, stale)
		}
	}
}

// raise adds an alert if its expression has it at the end. It fires if the expression has had it
// for the time of the rule.
func (p *prometheus) raise(r *rulefmt.Rule, s promql.Series, to time.Time) {
	p.t.Helper()
	since := to.Add(step)
	for i := len(s.Floats) - 1; i >= 0 && s.Floats[i].T == since.Add(-step).UnixMilli(); i-- {
		since = since.Add(-step)
	}
	if since.After(to) {
		return
	}
	last := promql.Sample{Metric: s.Metric, T: to.UnixMilli(), F: s.Floats[len(s.Floats)-1].F}
	b := labels.NewBuilder(s.Metric).Del(model.MetricNameLabel).Set(labels.AlertName, r.Alert)
	for name, text := range r.Labels {
		b.Set(name, p.expand(text, last))
	}
	a := &alert{name: r.Alert, labels: b.Labels(), firing: to.Sub(since) >= time.Duration(r.For),
		annotations: map[string]string{}}
	for name, text := range r.Annotations {
		a.annotations[name] = p.expand(text, last)
	}
	for _, other := range p.active {
		if labels.Equal(other.labels, a.labels) {
			p.t.Fatalf("there are two alerts %s at once", a.labels)
		}
	}
	p.active = append(p.active, a)
}

// expand fills in a template, in which a missing label is a mistake.
func (p *prometheus) expand(text string, s promql.Sample) string {
	p.t.Helper()
	data := template.AlertTemplateData(s.Metric.Map(), nil, "", s)
	out, err := template.NewTemplateExpander(p.t.Context(),
		"{{$labels := .Labels}}{{$value := .Value}}"+text, "alert", data,
		model.Time(s.T), nil, nil, []string{"missingkey=error"}).Expand()
	if err != nil {
		p.t.Fatalf("%s: %v", text, err)
	}
	return out
}

// names returns the names of alerts, of those that fire or of all that are active, each once.
func (p *prometheus) names(pending bool) []string {
	out := map[string]bool{}
	for _, a := range p.active {
		if a.firing || pending {
			out[a.name] = true
		}
	}
	return slices.Sorted(maps.Keys(out))
}

// load adds series in the notation of promtool's tests, one a line, from start on in steps.
func (p *prometheus) load(text string, start time.Time, step time.Duration) {
	p.t.Helper()
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		l, values, err := exprs.ParseSeriesDesc(line)
		if err != nil {
			p.t.Fatalf("%s: %v", line, err)
		}
		for i, v := range values {
			if !v.Omitted {
				p.memory.add(l, start.Add(time.Duration(i)*step), v.Value)
			}
		}
	}
}

func read(t testing.TB, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
