package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"vigil/test/proc"
)

// accepts has vigil read settings, without starting.
func accepts(t *testing.T, env []string, args ...string) string {
	t.Helper()
	res := proc.Run(t, 30*time.Second,
		proc.Spec{Name: proc.Path(t, proc.Vigil),
			Args: append([]string{"config"}, args...), Env: env})
	if res.Code != 0 {
		t.Fatalf("%q %q: %s", env, args, res.Stderr)
	}
	return res.Stdout
}

func TestConfigFile(t *testing.T) {
	out := accepts(t, nil, "--config-file="+filepath.Join(root(t), "packaging/systemd/vigil.yaml"))
	if !strings.Contains(out, "/var/lib/vigil/m1") {
		t.Error(out)
	}
}

// TestPod: a kubelet would take the manifest, and vigil its arguments.
func TestPod(t *testing.T) {
	type port struct {
		HTTPGet struct {
			Host, Path, Scheme string
			Port               int
		} `json:"httpGet"`
	}
	var pod struct {
		APIVersion, Kind string
		Spec             struct {
			HostNetwork bool
			Containers  []struct {
				Args                                        []string
				LivenessProbe, ReadinessProbe, StartupProbe port
				VolumeMounts                                []struct{ Name, MountPath string }
			}
			Volumes []struct {
				Name     string
				HostPath struct{ Path, Type string }
			}
		}
	}
	parse(t, "packaging/kubernetes/vigil.yaml", &pod)
	if pod.APIVersion != "v1" || pod.Kind != "Pod" || !pod.Spec.HostNetwork ||
		len(pod.Spec.Containers) != 1 {
		t.Fatalf("%+v", pod)
	}
	c := pod.Spec.Containers[0]
	filled := strings.NewReplacer("NODE_NAME", "n1", "NODE_IP", "10.0.0.1")
	var args []string
	metrics := false
	for _, a := range c.Args {
		args = append(args, filled.Replace(a))
		metrics = metrics || a == "--listen-metrics-urls=http://127.0.0.1:2381"
	}
	accepts(t, nil, args...)
	mounted := map[string]bool{}
	for _, m := range c.VolumeMounts {
		mounted[m.Name] = true
	}
	for _, v := range pod.Spec.Volumes {
		if !mounted[v.Name] || v.HostPath.Path == "" {
			t.Errorf("volume %+v", v)
		}
	}
	for _, p := range []port{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if g := p.HTTPGet; g.Host != "127.0.0.1" || g.Port != 2381 || g.Scheme != "HTTP" ||
			g.Path != "/livez" && g.Path != "/readyz" || !metrics {
			t.Errorf("probe %+v", g)
		}
	}
}

// TestUnit: systemd finds nothing wrong with the unit, once its program is there.
func TestUnit(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("needs systemd-analyze")
	}
	unit := read(t, "packaging/systemd/vigil.service")
	if !strings.Contains(unit, "Type=notify\n") ||
		!strings.Contains(unit, "\nExecStart=/usr/local/bin/vigil ") {
		t.Error("the unit does not run /usr/local/bin/vigil as a service that notifies")
	}
	file := filepath.Join(t.TempDir(), "vigil.service")
	unit = strings.ReplaceAll(unit, "/usr/local/bin/vigil", proc.Path(t, proc.Vigil))
	if err := os.WriteFile(file, []byte(unit), 0o600); err != nil {
		t.Fatal(err)
	}
	res := proc.Run(t, time.Minute,
		proc.Spec{Name: analyze, Args: []string{"verify", "--man=no", file}})
	if text := strings.TrimSpace(res.Stdout + res.Stderr); strings.Contains(text,
		"vigil.service") || res.Code != 0 {
		t.Errorf("exit code %d: %s", res.Code, text)
	}
}

// TestImage: what the image sets is read, what it copies is there, and nothing runs as root.
func TestImage(t *testing.T) {
	text := read(t, "packaging/Dockerfile")
	var env []string
	for _, m := range regexp.MustCompile(`\b(ETCD_[A-Z_]+=\S+)`).FindAllString(text, -1) {
		if m != "ETCD_NAME." {
			env = append(env, m)
		}
	}
	out := accepts(t, env)
	if len(env) == 0 || !strings.Contains(out, "http://0.0.0.0:2379") {
		t.Errorf("%q: %s", env, out)
	}
	for _, m := range regexp.MustCompile(`\./cmd/\w+`).FindAllString(text, -1) {
		if _, err := os.Stat(filepath.Join(root(t), m)); err != nil {
			t.Error(err)
		}
	}
	last := text[strings.LastIndex(text, "\nFROM "):]
	if user := regexp.MustCompile(`(?m)^USER (\d+)`).FindStringSubmatch(last); user == nil ||
		user[1] == "0" {
		t.Error("the program runs as root")
	}
}
