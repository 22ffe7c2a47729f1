package helm

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	cert "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/strvals"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

var chartDir = filepath.Join("..", "..", "packaging", "helm", "vigil")

// kinds makes an empty object of each kind that the chart may make.
var kinds = map[string]func() any{
	"v1 Service":                              func() any { return &core.Service{} },
	"v1 ServiceAccount":                       func() any { return &core.ServiceAccount{} },
	"apps/v1 StatefulSet":                     func() any { return &apps.StatefulSet{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"cert-manager.io/v1 Certificate":          func() any { return &cert.Certificate{} },
	"cert-manager.io/v1 Issuer":               func() any { return &cert.Issuer{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
}

// values parses settings in the way of helm's --set.
func values(t *testing.T, set ...string) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, s := range set {
		if err := strvals.ParseInto(s, out); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// render returns the text of each template.
func render(t *testing.T, release string, set ...string) (map[string]string, error) {
	t.Helper()
	c, err := loader.Load(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := chartutil.ToRenderValues(c, values(t, set...),
		chartutil.ReleaseOptions{Name: release, Namespace: "prod"}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, all)
}

// objects renders the chart and decodes what it makes by "KIND NAME"; a field that a kind does not
// have is an error.
func objects(t *testing.T, release string, set ...string) map[string]any {
	t.Helper()
	texts, err := render(t, release, set...)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	for name, text := range texts {
		if !strings.HasSuffix(name, ".yaml") {
			continue
		}
		for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(text, -1) {
			if strings.TrimSpace(doc) == "" {
				continue
			}
			var head struct {
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
				Metadata   struct{ Name, Namespace string }
			}
			if err := yaml.Unmarshal([]byte(doc), &head); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			empty := kinds[head.APIVersion+" "+head.Kind]
			if empty == nil {
				t.Fatalf("%s: kind %q of %q\n%s", name, head.Kind, head.APIVersion, doc)
			}
			o := empty()
			if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, doc)
			}
			key := head.Kind + " " + head.Metadata.Name
			if out[key] != nil || head.Metadata.Namespace != "prod" {
				t.Errorf("%s: %s in namespace %q, twice: %v", name, key, head.Metadata.Namespace,
					out[key] != nil)
			}
			if wrong := validation.IsDNS1035Label(head.Metadata.Name); len(wrong) > 0 {
				t.Errorf("%s: %s", key, wrong)
			}
			out[key] = o
		}
	}
	return out
}

// get returns an object that must be there.
func get[T any](t *testing.T, all map[string]any, name string) *T {
	t.Helper()
	o, ok := all[name].(*T)
	if !ok {
		t.Fatalf("no %s in %q", name, slices.Sorted(maps.Keys(all)))
	}
	return o
}

var everything = []string{"replicas=5", "tls.enabled=true", "tls.certManager.enabled=true",
	"serviceMonitor.enabled=true",
	"serviceMonitor.labels.team=store", "extraArgs[0]=--quota-backend-bytes=8589934592",
	"antiAffinity=hard",
	"persistence.storageClass=fast", "priorityClassName=system-cluster-critical",
	"service.annotations.a=b",
	"imagePullSecrets[0].name=pull", "extraEnv[0].name=GOMEMLIMIT", "extraEnv[0].value=1GiB",
	"nodeSelector.disk=ssd",
	"tolerations[0].key=store", "tolerations[0].operator=Exists", "podAnnotations.x=y",
	"podLabels.z=w"}

func TestLint(t *testing.T) {
	for _, set := range [][]string{nil, everything} {
		for _, m := range lint.All(chartDir, values(t, set...), "prod", true).Messages {
			if m.Severity > support.InfoSev {
				t.Errorf("%q: %s", set, m)
			}
		}
	}
}

// TestObjects: the parts of the chart fit together, and nothing runs with rights that it does not
// need.
func TestObjects(t *testing.T) {
	for _, set := range [][]string{nil,
		{"replicas=1", "persistence.enabled=false", "antiAffinity="}, everything,
		{"tls.enabled=true", "tls.serverSecret=s", "tls.peerSecret=p"}} {
		t.Run(fmt.Sprintf("%.60q", set), func(t *testing.T) {
			all := objects(t, "vigil", set...)
			s := get[apps.StatefulSet](t, all, "StatefulSet vigil").Spec
			pod := s.Template
			if !matches(s.Selector.MatchLabels, pod.Labels) {
				t.Errorf("selector %v, labels %v", s.Selector.MatchLabels, pod.Labels)
			}
			c := pod.Spec.Containers[0]
			ports := map[string]int32{}
			for _, p := range c.Ports {
				ports[p.Name] = p.ContainerPort
			}
			for _, name := range []string{"vigil", "vigil-peers"} {
				svc := get[core.Service](t, all, "Service "+name).Spec
				if !matches(svc.Selector, pod.Labels) {
					t.Errorf("service %s selects %v", name, svc.Selector)
				}
				for _, p := range svc.Ports {
					if ports[p.TargetPort.StrVal] != p.Port {
						t.Errorf("service %s: port %+v of %v", name, p, ports)
					}
				}
				if name == s.ServiceName &&
					(svc.ClusterIP != core.ClusterIPNone || !svc.PublishNotReadyAddresses) {
					t.Errorf("the members cannot find each other by %+v", svc)
				}
			}
			if s.ServiceName != "vigil-peers" ||
				s.PodManagementPolicy != apps.ParallelPodManagement {
				t.Errorf("%+v", s)
			}
			if b := get[policy.PodDisruptionBudget](t, all,
				"PodDisruptionBudget vigil").Spec; !matches(b.Selector.MatchLabels, pod.Labels) ||
				b.MaxUnavailable.IntValue() != 1 {
				t.Errorf("%+v", b)
			}
			get[core.ServiceAccount](t, all, "ServiceAccount "+pod.Spec.ServiceAccountName)
			checkRights(t, pod.Spec, c)
			checkVolumes(t, s, c)
			for _, p := range []*core.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if g := p.HTTPGet; ports[g.Port.StrVal] != 2381 || g.Path != "/livez" &&
					g.Path != "/readyz" {
					t.Errorf("probe %+v", g)
				}
			}
		})
	}
}

func matches(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

func checkRights(t *testing.T, pod core.PodSpec, c core.Container) {
	t.Helper()
	p, s := pod.SecurityContext, c.SecurityContext
	if !*p.RunAsNonRoot || *p.RunAsUser == 0 || p.SeccompProfile == nil ||
		!*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		!slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}) ||
		*pod.AutomountServiceAccountToken {
		t.Errorf("%+v, %+v", p, s)
	}
}

// checkVolumes: each mount has a volume, and each volume a mount.
func checkVolumes(t *testing.T, s apps.StatefulSetSpec, c core.Container) {
	t.Helper()
	var mounts, volumes []string
	for _, m := range c.VolumeMounts {
		mounts = append(mounts, m.Name)
	}
	for _, v := range s.Template.Spec.Volumes {
		volumes = append(volumes, v.Name)
	}
	for _, v := range s.VolumeClaimTemplates {
		volumes = append(volumes, v.Name)
	}
	slices.Sort(mounts)
	slices.Sort(volumes)
	if !slices.Equal(mounts, volumes) {
		t.Errorf("mounts %q, volumes %q", mounts, volumes)
	}
}

// TestCertificates: each certificate has the names by which its owner is reached, and an issuer
// that exists. Prometheus finds each member once, as a cluster of its own.
func TestCertificates(t *testing.T) {
	all := objects(t, "store", everything...)
	m := get[monitoring.ServiceMonitor](t, all, "ServiceMonitor store-vigil").Spec
	if e := m.Endpoints; len(e) != 1 ||
		*e[0].RelabelConfigs[0].Replacement != "vigil-prod-store-vigil" ||
		!matches(m.Selector.MatchLabels, get[core.Service](t, all, "Service store-vigil").Labels) ||
		matches(m.Selector.MatchLabels,
			get[core.Service](t, all, "Service store-vigil-peers").Labels) {
		t.Errorf("%+v", m)
	}
	get[cert.Issuer](t, all, "Issuer store-vigil-ca")
	if c := get[cert.Certificate](t, all, "Certificate store-vigil-ca").Spec; !c.IsCA ||
		c.IssuerRef.Name != "store-vigil-selfsigned" {
		t.Errorf("%+v", c)
	}
	for name, wants := range map[string][]string{
		"server": {"localhost", "store-vigil.prod.svc", "store-vigil.prod.svc.cluster.local",
			"*.store-vigil-peers.prod.svc.cluster.local"},
		"peer":   {"*.store-vigil-peers.prod.svc.cluster.local"},
		"client": nil,
	} {
		c := get[cert.Certificate](t, all, "Certificate store-vigil-"+name).Spec
		if c.SecretName != "store-vigil-"+name || c.IssuerRef.Name != "store-vigil-ca" ||
			c.IssuerRef.Kind != "Issuer" {
			t.Errorf("%s: %+v", name, c)
		}
		for _, w := range wants {
			if !slices.Contains(c.DNSNames, w) {
				t.Errorf("%s: no %s in %q", name, w, c.DNSNames)
			}
		}
	}
	all = objects(t, "store",
		append(everything, "tls.certManager.issuerRef.name=corp",
			"tls.certManager.issuerRef.kind=ClusterIssuer")...)
	if c := get[cert.Certificate](t, all,
		"Certificate store-vigil-peer").Spec.IssuerRef; c.Name != "corp" ||
		c.Kind != "ClusterIssuer" {
		t.Errorf("%+v", c)
	}
	if all["Issuer store-vigil-ca"] != nil {
		t.Error("an authority of its own next to the given issuer")
	}
}

// TestMistakes: values that cannot work are refused with the name of the value.
func TestMistakes(t *testing.T) {
	for set, want := range map[string]string{
		"replicas=0":                 "replicas",
		"replicas=three":             "replicas",
		"initialClusterState=old":    "initialClusterState",
		"persistence.size=much":      "size",
		"extraArgs[0]=quota":         "extraArgs",
		"replica=3":                  "replica",
		"tls.certmanager.enabled=1":  "certmanager",
		"antiAffinity=maybe":         "antiAffinity",
		"image.pullPolicy=Sometimes": "pullPolicy",
	} {
		if _, err := render(t, "vigil", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", set, err)
		}
	}
}
