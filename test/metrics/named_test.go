package metrics

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"sigs.k8s.io/yaml"

	"vigil/test/proc"
)

// name finds the names of metrics of the server.
var name = regexp.MustCompile(`\b(etcd|vigil|grpc|process|go|os)_[a-z0-9_]+\b`)

// notMetrics look like one: labels, and what the API server of Kubernetes exports about its store.
var notMetrics = []string{"grpc_code", "grpc_method", "grpc_service", "grpc_type", "etcd_request_duration_seconds"}

// base is the metric that a series belongs to.
func base(all map[string]*family, series string) string {
	if all[series] == nil {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if b, ok := strings.CutSuffix(series, suffix); ok && all[b] != nil && all[b].kind == "histogram" {
				return b
			}
		}
	}
	return series
}

// TestNamed: every metric that a rule, a panel or a page names is exported, and every one that only this program
// has is on the page for it.
func TestNamed(t *testing.T) {
	all := ours(t)
	top := filepath.Join("..", "..")
	observe := read(t, filepath.Join(top, "docs/operations/observe.md"))
	texts := map[string]string{
		"alerts.yaml": strings.Join(alertExpressions(t, filepath.Join(top, "packaging/prometheus/alerts.yaml"), observe), "\n"),
		"vigil.json":  strings.Join(panelExpressions(t, filepath.Join(top, "packaging/grafana/vigil.json")), "\n"),
	}
	pages, err := filepath.Glob(filepath.Join(top, "docs/operations/*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	for _, page := range pages {
		// Of pages what is set as code and is a whole name.
		var words []string
		for _, m := range regexp.MustCompile("`([a-z0-9_]+)(\\{[^`]*\\})?`").FindAllStringSubmatch(read(t, page), -1) {
			words = append(words, m[1])
		}
		texts[filepath.Base(page)] = strings.Join(words, "\n")
	}
	for where, text := range texts {
		names := name.FindAllString(text, -1)
		for _, n := range names {
			if b := base(all, n); all[b] == nil && !slices.Contains(notMetrics, n) {
				t.Errorf("%s names %s, which is not exported", where, n)
			}
		}
		if len(names) == 0 && (where == "alerts.yaml" || where == "vigil.json") {
			t.Errorf("%s names nothing", where)
		}
	}
	for _, n := range sorted(all) {
		if strings.HasPrefix(n, "vigil_") && !strings.Contains(observe, "`"+n+"`") {
			t.Errorf("observe.md does not mention %s", n)
		}
	}
}

// alertExpressions returns the expressions of the rules; each rule must point to a section of the page.
func alertExpressions(t *testing.T, path, page string) (out []string) {
	t.Helper()
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalStrict([]byte(read(t, path)), &file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			out = append(out, r.Expr)
			if seen[r.Alert] || r.Expr == "" || r.Annotations["summary"] == "" || r.Labels["severity"] != "warning" && r.Labels["severity"] != "critical" {
				t.Errorf("rule %+v", r)
			}
			seen[r.Alert] = true
			if !strings.Contains(page, "\n### "+r.Alert+"\n") || r.Annotations["runbook"] != "docs/operations/observe.md#"+strings.ToLower(r.Alert) {
				t.Errorf("observe.md has no response to %s", r.Alert)
			}
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^### (Vigil\w+)$`).FindAllStringSubmatch(page, -1) {
		if !seen[m[1]] {
			t.Errorf("there is no alert %s", m[1])
		}
	}
	return out
}

// panelExpressions returns what the panels of a dashboard ask for. Panels must not overlap.
func panelExpressions(t *testing.T, path string) (out []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			ID          int
			Title, Type string
			GridPos     struct{ H, W, X, Y int }
			Targets     []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, path)), &board); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			out = append(out, q.Expr)
		}
		if len(p.Targets) == 0 && p.Type != "row" {
			t.Errorf("panel %q asks for nothing", p.Title)
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
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// alarm raises an alarm, so that the metric of alarms is there.
func alarm(ctx context.Context, t *testing.T, s *proc.Server) {
	t.Helper()
	m := pb.NewMaintenanceClient(s.Dial())
	if _, err := m.Alarm(ctx, &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE}); err != nil {
		t.Fatal(err)
	}
}
