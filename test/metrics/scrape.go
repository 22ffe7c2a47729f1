package metrics

import (
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"vigil/test/proc"
)

// family is one metric: its type, and its series by their labels without the values of ids.
type family struct {
	kind   string
	series map[string]bool
}

// scrape reads /metrics.
func scrape(t testing.TB, s *proc.Server) map[string]*family {
	t.Helper()
	res, err := http.Get("http://" + s.Addr() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatal(res.Status, err)
	}
	return parse(string(text))
}

// ids are labels whose values differ from process to process.
var ids = regexp.MustCompile(`(Local|Remote|To|From|server_id|server_go_version|version)="[^"]*"`)

// parse reads the text format.
func parse(text string) map[string]*family {
	out := map[string]*family{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			out[name] = &family{kind: kind, series: map[string]bool{}}
			continue
		}
		if line == "" || line[0] == '#' {
			continue
		}
		series := line[:strings.LastIndexByte(line, ' ')]
		name, labels, _ := strings.Cut(series, "{")
		f := out[name]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, ok := strings.CutSuffix(name, suffix); f == nil && ok {
				f, labels = out[base], suffix+" {"+labels
			}
		}
		if f != nil {
			f.series[ids.ReplaceAllString(strings.TrimSuffix(labels, "}"), `$1="ID"`)] = true
		}
	}
	return out
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
