package http2

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/reporter"
	"github.com/summerwind/h2spec/spec"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// cases is how many cases h2spec has.
const cases = 145

// start runs a server with an address that serves gRPC only, so that all connections reach its
// transport.
func start(t *testing.T, scheme string, args ...string) (host string, port int) {
	t.Helper()
	c := proc.Config{Program: proc.Vigil, Memory: true, ClientPort: proc.FreePort(t)}
	url := fmt.Sprintf("%s://127.0.0.1:%d", scheme, c.ClientPort)
	c.Args = append([]string{"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
		fmt.Sprintf("--listen-client-http-urls=%s://127.0.0.1:%d", scheme, proc.FreePort(t)),
		// so that the case of too many streams is not skipped
		"--max-concurrent-streams=100"}, args...)
	s := proc.Start(t, c)
	host, text, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	if port, err = strconv.Atoi(text); err != nil {
		t.Fatal(err)
	}
	return host, port
}

// check runs all cases.
func check(t *testing.T, c *config.Config) {
	t.Helper()
	c.Path, c.MaxHeaderLen = "/", 4000
	c.Timeout = time.Minute // no case that passes waits for it
	groups := []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()}
	passed, others := 0, 0
	for _, g := range groups {
		g.Test(c)
		passed += g.PassedCount
		others += g.FailedCount + g.SkippedCount
	}
	if others > 0 || passed != cases {
		reporter.FailedTests(groups)
		t.Errorf("%d of %d cases passed, %d failed or were skipped", passed, cases, others)
	}
}

func TestH2specPlain(t *testing.T) {
	host, port := start(t, "http")
	check(t, &config.Config{Host: host, Port: port})
}

func TestH2specTLS(t *testing.T) {
	a := pki.New(t)
	a.Issue("server", nil)
	host, port := start(t, "https", "--cert-file="+a.File("server.pem"),
		"--key-file="+a.File("server-key.pem"))
	check(t, &config.Config{Host: host, Port: port, TLS: true, Insecure: true})
}
