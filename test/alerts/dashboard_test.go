package alerts

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// panel is a panel of the dashboard.
type panel struct {
	ID                       int
	Title, Type, Description string
	GridPos                  struct{ H, W, X, Y int }
	Targets                  []struct{ Expr string }
}

// dashboard returns the panels, and the expressions of annotations.
func dashboard(t testing.TB) (panels []panel, annotations []string) {
	t.Helper()
	var board struct {
		Panels      []panel
		Annotations struct{ List []struct{ Expr string } }
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(folder, "dashboard.json"))),
		&board); err != nil {
		t.Fatal(err)
	}
	for _, a := range board.Annotations.List {
		annotations = append(annotations, grafana.Replace(a.Expr))
	}
	for i := range board.Panels {
		for j := range board.Panels[i].Targets {
			q := &board.Panels[i].Targets[j]
			q.Expr = grafana.Replace(q.Expr)
		}
	}
	return board.Panels, annotations
}

// grafana sets the variables of the dashboard as Grafana does for all members of the job.
var grafana = strings.NewReplacer("$__rate_interval", "1m", "$job", "vigil", "$instance", ".*")

// TestPanels: every panel has a description and a place of its own, and Prometheus can parse its
// expressions.
func TestPanels(t *testing.T) {
	panels, more := dashboard(t)
	if len(panels) < 30 || len(more) == 0 {
		t.Fatal("panels are missing")
	}
	taken, ids := map[[2]int]string{}, map[int]bool{}
	for _, p := range panels {
		if len(p.Description) < 20 {
			t.Errorf("panel %q has no description: %q", p.Title, p.Description)
		}
		if ids[p.ID] || p.Title == "" || (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("panel %+v", p)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			if _, err := exprs.ParseExpr(q.Expr); err != nil {
				t.Errorf("panel %q: %v", p.Title, err)
			}
		}
		for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				if other, ok := taken[[2]int{x, y}]; ok || x >= 24 {
					t.Fatalf("panel %q lies on %q, or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	for _, e := range more {
		if _, err := exprs.ParseExpr(e); err != nil {
			t.Error(err)
		}
	}
}

// selectors returns the names of the series that an expression reads, and fails for one that reads
// other jobs than Vigil's.
func selectors(t testing.TB, expr string) (names []string) {
	t.Helper()
	e, err := exprs.ParseExpr(expr)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		names = append(names, v.Name)
		ofJob := slices.ContainsFunc(v.LabelMatchers,
			func(m *labels.Matcher) bool { return m.Name == "job" })
		if !ofJob && !strings.Contains(v.Name, ":") { // what is recorded is of these jobs
			t.Errorf("%s in %s is not limited to a job", v.Name, expr)
		}
		return nil
	})
	return names
}
