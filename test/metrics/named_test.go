package metrics

import (
	"context"
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

// recorded finds the names of series that rules record; test/alerts checks them.
var recorded = regexp.MustCompile(`\bjob\w*:\w+:\w+`)

// notMetrics look like one: labels, and what the API server of Kubernetes exports about its store.
var notMetrics = []string{"grpc_code", "grpc_method", "grpc_service", "grpc_type",
	"etcd_request_duration_seconds"}

// base is the metric that a series belongs to.
func base(all map[string]*family, series string) string {
	if all[series] == nil {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if b, ok := strings.CutSuffix(series, suffix); ok && all[b] != nil &&
				all[b].kind == "histogram" {
				return b
			}
		}
	}
	return series
}

// TestNamed: every metric that a rule, a panel or a page names is exported, and every one that only
// this program has is on the page for it.
func TestNamed(t *testing.T) {
	all := ours(t)
	top := filepath.Join("..", "..")
	observe := read(t, filepath.Join(top, "docs/operations/observe.md"))
	texts := map[string]string{
		"rules.yaml":     expressions(t, filepath.Join(top, "packaging/monitoring/rules.yaml")),
		"dashboard.json": expressions(t, filepath.Join(top, "packaging/monitoring/dashboard.json")),
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
		if len(names) == 0 && (where == "rules.yaml" || where == "dashboard.json") {
			t.Errorf("%s names nothing", where)
		}
	}
	for _, n := range sorted(all) {
		if strings.HasPrefix(n, "vigil_") && !strings.Contains(observe, "`"+n+"`") {
			t.Errorf("observe.md does not mention %s", n)
		}
	}
}

// expressions returns the expressions in a file of rules or in a dashboard.
func expressions(t *testing.T, path string) string {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []struct{ Expr string } }
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := yaml.Unmarshal([]byte(read(t, path)), &file); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			out.WriteString(r.Expr + "\n")
		}
	}
	for _, p := range file.Panels {
		for _, q := range p.Targets {
			out.WriteString(q.Expr + "\n")
		}
	}
	return recorded.ReplaceAllString(out.String(), "")
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
	if _, err := m.Alarm(ctx,
		&pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE,
			Alarm: pb.AlarmType_NOSPACE}); err != nil {
		t.Fatal(err)
	}
}
