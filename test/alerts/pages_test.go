package alerts

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"go.yaml.in/yaml/v3"
)

// pages is the base address of all pages, as the head of rules.yaml says, and
// docs/operations/observe.md how to change it.
const pages = "https://vigil.example/"

var heading = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)

// anchors returns what the headings of a page can be linked by.
func anchors(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(text, -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N}\- _]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out[strings.ReplaceAll(plain, " ", "-")] = true
	}
	return out
}

// TestRunbooks: each alert has all that somebody needs who is woken by it, and links a section that
// exists.
func TestRunbooks(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range loadRules(t) {
		if r.Alert == "" {
			continue
		}
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if len(r.Annotations["summary"]) < 20 || len(r.Annotations["description"]) < 60 {
			t.Errorf("%s: %q", r.Alert, r.Annotations)
		}
		url := r.Annotations["runbook_url"]
		path, section, _ := strings.Cut(strings.TrimPrefix(url, pages), "#")
		if !strings.HasPrefix(url, pages) || section != strings.ToLower(r.Alert) ||
			!anchors(read(t, filepath.Join("../..", path)))[section] {
			t.Errorf("%s: no page %s", r.Alert, url)
		}
	}
	for section := range anchors(read(t, "../../docs/operations/observe.md")) {
		if name, ok := strings.CutPrefix(section, "vigil"); ok &&
			!strings.ContainsAny(name, "-_") && !hasFold(seen, section) {
			t.Errorf("observe.md has a response to %s, which is no alert", section)
		}
	}
	if rules := read(t, filepath.Join(folder, "rules.yaml")); strings.Count(rules,
		pages) != len(seen)+1 {
		t.Errorf("rules.yaml has %s %d times", pages, strings.Count(rules, pages))
	}
}

func hasFold(set map[string]bool, name string) bool {
	for s := range set {
		if strings.EqualFold(s, name) {
			return true
		}
	}
	return false
}

// TestConditions: the response to each alert begins with its severity and duration as they are, and
// the page knows how many there are.
func TestConditions(t *testing.T) {
	page := read(t, "../../docs/operations/observe.md")
	alerts := 0
	for _, r := range loadRules(t) {
		if r.Alert == "" {
			continue
		}
		alerts++
		after := "at once"
		if r.For > 0 {
			after = r.For.String()
		}
		begin := fmt.Sprintf("\n### %s\n\n%s, %s: ", r.Alert, r.Labels["severity"], after)
		if !strings.Contains(page, begin) {
			t.Errorf("observe.md lacks %q", begin)
		}
	}
	if !strings.Contains(page, fmt.Sprintf(" %d alerts ", alerts)) {
		t.Errorf("observe.md has another number than %d alerts in its text", alerts)
	}
}

// TestScrapeConfigurations: the examples have the fields of Prometheus, scrape jobs that the rules
// look at, and load the rules.
func TestScrapeConfigurations(t *testing.T) {
	type targets []struct{ Targets []string }
	for _, file := range []string{"prometheus.yaml", "prometheus-tls.yaml"} {
		var c struct {
			Global        map[string]model.Duration `yaml:"global"`
			RuleFiles     []string                  `yaml:"rule_files"`
			ScrapeConfigs []struct {
				Job    string `yaml:"job_name"`
				Scheme string
				TLS    struct {
					CA   string `yaml:"ca_file"`
					Cert string `yaml:"cert_file"`
					Key  string `yaml:"key_file"`
				} `yaml:"tls_config"`
				Static targets `yaml:"static_configs"`
			} `yaml:"scrape_configs"`
			Alerting struct {
				Managers []struct {
					Static targets `yaml:"static_configs"`
				} `yaml:"alertmanagers"`
			}
		}
		d := yaml.NewDecoder(strings.NewReader(read(t, filepath.Join(folder, file))))
		d.KnownFields(true)
		if err := d.Decode(&c); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		s := c.ScrapeConfigs
		if len(s) != 1 || !regexp.MustCompile("^(?:vigil.*)$").MatchString(s[0].Job) ||
			len(s[0].Static) != 1 || len(s[0].Static[0].Targets) != 3 ||
			len(c.RuleFiles) != 1 || c.RuleFiles[0] != "rules.yaml" ||
			len(c.Alerting.Managers) != 1 {
			t.Errorf("%s: %+v", file, c)
		}
		if tls := strings.Contains(file, "tls"); tls != (s[0].Scheme == "https") ||
			tls != (s[0].TLS.CA != "" && s[0].TLS.Cert != "" && s[0].TLS.Key != "") {
			t.Errorf("%s: %+v", file, s[0])
		}
		// rate() needs several samples within its range, and up is stale after a few minutes.
		for _, name := range []string{"scrape_interval", "evaluation_interval"} {
			if v := c.Global[name]; v == 0 || v > model.Duration(step) {
				t.Errorf("%s: %s %v", file, name, v)
			}
		}
	}
}

// TestOperator: the commands of the page make the resource of the Prometheus Operator, with all
// rules.
func TestOperator(t *testing.T) {
	page := read(t, "../../docs/operations/observe.md")
	m := regexp.MustCompile(`(?m)^(\{ printf .*\}) \| kubectl apply -f -$`).FindStringSubmatch(page)
	if m == nil {
		t.Fatal("the page has no such command")
	}
	c := exec.Command("sh", "-c", m[1])
	c.Dir = folder
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var resource struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Metadata   struct{ Name string }
		Spec       rulefmt.RuleGroups
	}
	d := yaml.NewDecoder(strings.NewReader(string(out)))
	d.KnownFields(true)
	if err := d.Decode(&resource); err != nil {
		t.Fatal(err)
	}
	if g := resource.Spec.Groups; resource.Kind != "PrometheusRule" || len(g) != 1 ||
		len(g[0].Rules) != len(loadRules(t)) {
		t.Errorf("%+v", resource)
	}
	// The change of the base address: the page has the command with another file.
	sed := regexp.MustCompile(`(?m)^\$ sed -i ('s\|` + regexp.QuoteMeta(pages) +
		`\|[^']*') `).FindStringSubmatch(page)
	if sed == nil {
		t.Fatal("the page has no command for the base address")
	}
	c = exec.Command("sh", "-c", "sed "+sed[1]+" rules.yaml")
	c.Dir = folder
	if out, err = c.Output(); err != nil || strings.Contains(string(out), pages+"docs") ||
		!strings.Contains(string(out), "/console/docs/operations/observe.md#vigildamage") {
		t.Errorf("%v: the address is still there", err)
	}
	var monitor struct {
		Kind string
		Spec struct {
			JobLabel string `yaml:"jobLabel"`
			Selector struct {
				MatchLabels map[string]string `yaml:"matchLabels"`
			}
			Endpoints []struct{ Port string }
		}
	}
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(folder, "servicemonitor.yaml"))),
		&monitor); err != nil {
		t.Fatal(err)
	}
	if s := monitor.Spec; monitor.Kind != "ServiceMonitor" || len(s.Endpoints) != 1 ||
		!strings.HasPrefix(s.Selector.MatchLabels[s.JobLabel], "vigil") {
		t.Errorf("%+v", monitor)
	}
}
