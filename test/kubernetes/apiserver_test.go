package kubernetes

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"vigil/test/proc"
)

const (
	// patience bounds the waiting for a condition.
	patience = time.Minute
	// token lets its bearer do everything.
	token = "the-token-of-the-tests"
)

// buildAPIServer builds the stock API server, once in a test run.
var buildAPIServer = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "k8s.io/kubernetes").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	dir, err := filepath.Abs("bin")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "kube-apiserver")
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", name,
		"-ldflags=-X k8s.io/component-base/version.gitVersion="+strings.TrimSpace(string(out)),
		"k8s.io/kubernetes/cmd/kube-apiserver")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go build kube-apiserver: %w\n%s", err, stderr.String())
	}
	return name, nil
})

// apiServer is a kube-apiserver process and the clients of it.
type apiServer struct {
	*kubernetes.Clientset
	dynamic dynamic.Interface
	config  *rest.Config

	t       *testing.T
	name    string
	args    []string
	process *proc.Process
}

// startAPIServer runs an API server over the given members of a store, and returns when it is
// ready.
func startAPIServer(t *testing.T, members []string, args ...string) *apiServer {
	t.Helper()
	name, err := buildAPIServer()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	key := filepath.Join(dir, "service-accounts.pem")
	writeKey(t, key)
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+`,tester,1,"system:masters"`+"\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	port := proc.FreePort(t)
	s := &apiServer{t: t, name: name, args: append([]string{
		"--etcd-servers=" + strings.Join(members, ","),
		"--bind-address=127.0.0.1",
		// Loopback is refused here; nothing connects to it.
		"--advertise-address=192.0.2.1",
		"--secure-port=" + strconv.Itoa(port),
		"--cert-dir=" + filepath.Join(dir, "certificates"),
		"--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key,
		"--service-account-signing-key-file=" + key,
		"--token-auth-file=" + tokens,
		"--authorization-mode=RBAC",
		// Nothing here creates service accounts for pods, or serves webhooks.
		"--disable-admission-plugins=ServiceAccount",
	}, args...)}
	s.config = &rest.Config{
		Host:            "https://127.0.0.1:" + strconv.Itoa(port),
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
		QPS:             -1,
		Timeout:         patience,
	}
	if s.Clientset, err = kubernetes.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	if s.dynamic, err = dynamic.NewForConfig(s.config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.process.Kill()
		if t.Failed() {
			t.Logf("log of kube-apiserver:\n%s", s.process.Log().Tail(40))
		}
	})
	s.launch()
	return s
}

// launch runs the process, which must not be running, and returns when it is ready.
func (s *apiServer) launch() {
	s.t.Helper()
	// The cache compares itself with the store now and then and should end the process if they
	// differ.
	p, err := proc.Launch(append([]string{s.name}, s.args...),
		[]string{"KUBE_WATCHCACHE_CONSISTENCY_CHECKER=true"})
	if err != nil {
		s.t.Fatal(err)
	}
	s.process = p
	s.ready()
}

// ready waits until the server reports that it is.
func (s *apiServer) ready() {
	s.t.Helper()
	var last string
	until(s.t, "kube-apiserver is ready", func() bool {
		select {
		case <-s.process.Exited():
			s.t.Fatalf("kube-apiserver ended: %s\n%s", s.process.State(), s.process.Log().Tail(40))
		default:
		}
		body, err := s.RESTClient().Get().AbsPath("/readyz").Param("verbose",
			"").DoRaw(s.t.Context())
		last = fmt.Sprintf("%v\n%s", err, body)
		return err == nil
	}, &last)
}

// metric returns the sum of the samples of a metric whose labels match, each given as name="value".
func (s *apiServer) metric(name string, labels ...string) float64 {
	s.t.Helper()
	body, err := s.RESTClient().Get().AbsPath("/metrics").DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	sum := 0.0
	for _, m := range regexp.MustCompile(`(?m)^`+name+
		`(\{.*\})? (\S+)$`).FindAllStringSubmatch(string(body), -1) {
		matches := true
		for _, l := range labels {
			matches = matches && strings.Contains(m[1], l)
		}
		if v, err := strconv.ParseFloat(m[2], 64); err == nil && matches {
			sum += v
		}
	}
	return sum
}

// until waits until a condition holds and fails the test if it never does, showing what detail has
// then.
func until(t *testing.T, what string, holds func() bool, detail *string) {
	t.Helper()
	for end := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			if detail != nil {
				what += ": " + *detail
			}
			t.Fatalf("waited %s in vain: %s", patience, what)
		}
	}
}

// within returns a context that ends long after what any step takes.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	t.Cleanup(cancel)
	return ctx
}

func writeKey(t *testing.T, name string) {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	b := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY",
		Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
