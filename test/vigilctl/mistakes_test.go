package vigilctl

import (
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// TestMistakes runs vigilctl with mistakes on its command line, without any member: standard error
// is one line that says what is wrong, and nothing is written. go test ./vigilctl -run TestMistakes
// -rewrite writes the outcomes anew.
func TestMistakes(t *testing.T) {
	program := proc.Path(t, proc.Vigilctl)
	datadriven.RunTest(t, "testdata/mistakes", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for line := range strings.SplitSeq(strings.TrimSpace(d.Input), "\n") {
			dir := t.TempDir()
			t.Chdir(dir)
			var env []string
			if !strings.Contains(line, "--endpoints") {
				env = []string{"VIGILCTL_ENDPOINTS=127.0.0.1:1"} // nothing listens there
			}
			words := proc.Words(line)
			for len(words) > 0 && strings.HasPrefix(words[0], "VIGILCTL_") {
				env, words = append(env, words[0]), words[1:]
			}
			r := proc.Run(t, untilTimeout, proc.Spec{Name: program, Args: words, Env: env})
			fmt.Fprintf(&out, "%d %s", r.Code, r.Stderr)
			if r.Code == 0 || r.Stdout != "" || strings.Count(r.Stderr, "\n") != 1 {
				t.Errorf("%s: %s: exit code %d\n%s%s", d.Pos, line, r.Code, r.Stdout, r.Stderr)
			}
			for _, raw := range []string{"strconv.", "invalid syntax", "parsing", "time: ",
				"unexpected EOF", "rpc error"} {
				if strings.Contains(r.Stderr, raw) {
					t.Errorf("%s: %s: %q in %s", d.Pos, line, raw, r.Stderr)
				}
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("%s: %s: it left %v, %v", d.Pos, line, left, err)
			}
		}
		return out.String()
	})
}

// TestReasons: an error of a member is followed by what the member knows about its reason.
func TestReasons(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--quota-backend-bytes=40000"}})
	ctl := func(args ...string) proc.Result {
		t.Helper()
		return proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args,
				Env: []string{"VIGILCTL_ENDPOINTS=" + s.Addr()}})
	}
	for i := range 5 { // revisions 2 to 6
		if r := ctl("put", "k", fmt.Sprint(i)); r.Code != 0 {
			t.Fatal(r.Stderr)
		}
	}
	if r := ctl("compaction", "4"); r.Code != 0 {
		t.Fatal(r.Stderr)
	}
	const gone, future = "Error: etcdserver: mvcc: required revision has been compacted\n",
		"Error: etcdserver: mvcc: required revision is a future revision\n"
	compacted := gone + "  revision 2 was asked for; the store was compacted at revision 4\n"
	for _, c := range []struct{ line, want string }{
		{"get k --rev 2", compacted},
		{"compaction 2", compacted},
		{"dump k - --rev 2", compacted},
		{"diff k --from 2 --to 3", compacted},
		{"history k --to 3", "Error: --to 3: revisions up to 4 have been compacted\n"},
		{"get k --rev 100", future + "  revision 100 was asked for; the store is at revision 6\n"},
		{"compaction 100", future + "  revision 100 was asked for; the store is at revision 6\n"},
	} {
		if r := ctl(strings.Fields(c.line)...); r.Code != 1 || r.Stderr != c.want {
			t.Errorf("%s: %d\n%s", c.line, r.Code, r.Stderr)
		}
	}
	if r := ctl("watch", "k", "--rev", "2"); r.Code != 5 ||
		!strings.Contains(r.Stderr,
			"revision 2 was asked for; the store was compacted at revision 4\n") {
		t.Errorf("watch: %d\n%s", r.Code, r.Stderr)
	}

	// The write that crosses the quota may be applied; the next one is rejected.
	big := strings.Repeat("x", 30000)
	var r proc.Result
	for i := 0; i < 5 && r.Code == 0; i++ {
		r = ctl("put", fmt.Sprint("big", i), big)
	}
	want := "Error: etcdserver: mvcc: database space exceeded\n  " + s.Addr() +
		": the quota of 40000 bytes is used up"
	if r.Code != 1 || !strings.HasPrefix(r.Stderr, want) ||
		!strings.HasSuffix(r.Stderr, "\n  next: vigilctl doctor\n") {
		t.Errorf("%d\n%s", r.Code, r.Stderr)
	}
}

// TestTLSReasons: what is wrong with certificates is reported with the flags that help, and at
// once: the timeouts are hours.
func TestTLSReasons(t *testing.T) {
	t.Parallel()
	ca, other := pki.New(t), pki.New(t)
	ca.Issue("server", nil)
	ca.Issue("client", nil)
	ca.Issue("expired", func(c *x509.Certificate) {
		c.NotBefore, c.NotAfter = time.Now().Add(-2*time.Hour), time.Now().Add(-time.Hour)
	})
	ca.Issue("forservers",
		func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} })
	ca.Revoke("revoked.der", ca.Issue("revoked", nil))
	other.Issue("stranger", nil)
	plain := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	port := proc.FreePort(t)
	url := fmt.Sprintf("https://127.0.0.1:%d", port)
	proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true, ClientPort: port,
		Args: []string{"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
			"--cert-file=" + ca.File("server.pem"), "--key-file=" + ca.File("server-key.pem"),
			"--trusted-ca-file=" + ca.File("authority.pem"), "--client-cert-auth",
			"--client-crl-file=" + ca.File("revoked.der")}})
	ctl := func(args ...string) proc.Result {
		t.Helper()
		args = append([]string{"put", "k", "v", "--dial-timeout=1h",
			"--command-timeout=1h"}, args...)
		return proc.Run(t, untilTimeout, proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args})
	}
	at := func(a *pki.Authority, files ...string) (args []string) {
		for _, f := range files {
			args = append(args, map[string]string{"authority.pem": "--cacert=",
				"client.pem": "--cert=", "client-key.pem": "--key="}[f]+a.File(f))
		}
		return args
	}
	const unreachable = "Error: no member can be reached; 127.0.0.1:%d: "
	demands := unreachable +
		"the member demands a certificate of its clients, of an authority that it trusts: give --cert and --key\n"
	unknown := unreachable +
		"the authority of the member's certificate is not known: give --cacert\n"
	trusted := at(ca, "authority.pem")
	shows := func(a *pki.Authority, name string) []string {
		return append([]string{"--endpoints=" + url, "--cert=" + a.File(name+".pem"),
			"--key=" + a.File(name+"-key.pem")}, trusted...)
	}
	rejects := unreachable +
		"the member rejects the client's certificate: give --cert and --key of one for clients that the member allows; its log has the reason\n"
	speaksTLS := unreachable + "the port speaks TLS: write https://\n"
	for _, c := range []struct {
		want string
		args []string
	}{
		{demands, append(trusted, "--endpoints="+url)},
		{unknown, []string{"--endpoints=" + url}},
		{unknown, append(at(other, "authority.pem"), "--endpoints="+url)},
		{"Error: no member can be reached; localhost:%d: the member's certificate is not valid for any names, but wanted to match localhost\n",
			append(trusted, fmt.Sprintf("--endpoints=https://localhost:%d", port))},
		{unreachable + "the member does not know the authority of the client's certificate: give --cert and --key of an authority that the member trusts\n", shows(other, "stranger")},
		{unreachable + "the client's certificate has expired, or the authority that signed it: give --cert and --key of a newer one\n", shows(ca, "expired")},
		{rejects, shows(ca, "forservers")},
		{rejects, shows(ca, "revoked")},
		{speaksTLS, []string{fmt.Sprintf("--endpoints=http://127.0.0.1:%d", port)}},
		{speaksTLS, []string{fmt.Sprintf("--endpoints=127.0.0.1:%d", port)}},
	} {
		if r := ctl(c.args...); r.Code != 1 || r.Stderr != fmt.Sprintf(c.want, port) {
			t.Errorf("%q: %d\n%s\nwant\n"+c.want, c.args, r.Code, r.Stderr, port)
		}
	}
	stockPort := proc.FreePort(t)
	stock := fmt.Sprintf("https://127.0.0.1:%d", stockPort)
	proc.Start(t, proc.Config{Program: proc.Etcd, ClientPort: stockPort,
		Args: []string{"--listen-client-urls=" + stock, "--advertise-client-urls=" + stock,
			"--cert-file=" + ca.File("server.pem"), "--key-file=" + ca.File("server-key.pem"),
			"--trusted-ca-file=" + ca.File("authority.pem"), "--client-cert-auth"}})
	for want, args := range map[string][]string{speaksTLS: {fmt.Sprintf("--endpoints=127.0.0.1:%d",
		stockPort)}, demands: append(trusted, "--endpoints="+stock)} {
		if r := ctl(args...); r.Code != 1 || r.Stderr != fmt.Sprintf(want, stockPort) {
			t.Errorf("%q: %d\n%s\nwant\n"+want, args, r.Code, r.Stderr, stockPort)
		}
	}
	want := "Error: no member can be reached; " + plain.Addr() +
		": the port speaks no TLS: write http://, without certificates\n"
	for _, args := range [][]string{{"--endpoints=https://" + plain.Addr()},
		append([]string{"--endpoints=" + plain.Addr()}, trusted...)} {
		if r := ctl(args...); r.Code != 1 || r.Stderr != want {
			t.Errorf("%q: %d\n%s\nwant\n%s", args, r.Code, r.Stderr, want)
		}
	}
	if r := ctl(append(append(trusted, at(ca, "client.pem", "client-key.pem")...),
		"--endpoints="+url)...); r.Code != 0 {
		t.Errorf("%d\n%s", r.Code, r.Stderr)
	}
}

// TestFrozen: what commands say of a member that accepts connections and does not answer is true,
// for less and for more time than an attempt to connect takes.
func TestFrozen(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	s.Pause()
	// which doctor says in the next step
	const says, next = "accepts the connection and does not answer",
		"its process hangs or is stopped"
	for _, c := range [][]string{
		{"put", "k", "v"}, {"put", "k", "v", "--dial-timeout=13s"}, {"top", "--once"},
		{"top", "--once", "--interval=12s"}, {"endpoint", "status"}, {"doctor"},
	} {
		t.Run(strings.Join(c, " "), func(t *testing.T) {
			t.Parallel()
			r := proc.Run(t, untilTimeout,
				proc.Spec{Name: proc.Path(t, proc.Vigilctl),
					Args: append(c, "--endpoints="+s.Addr())})
			if out := strings.Join(strings.Fields(r.Stdout+r.Stderr), " "); r.Code != 1 ||
				!strings.Contains(out, says) || !strings.Contains(out, next) ||
				strings.Contains(out, "TLS") {
				t.Errorf("%d %s%s", r.Code, r.Stdout, r.Stderr)
			}
		})
	}
}

// TestProxyAnswers: an error of a proxy is not the member's.
func TestProxyAnswers(t *testing.T) {
	t.Parallel()
	proxy := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusBadGateway)
	}))
	proxy.Config.Protocols = new(http.Protocols)
	proxy.Config.Protocols.SetUnencryptedHTTP2(true)
	proxy.Start()
	t.Cleanup(proxy.Close)
	r := proc.Run(t, untilTimeout,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"get", "k", "--endpoints=" + proxy.Listener.Addr().String()}})
	if r.Code != 1 || !strings.Contains(r.Stderr, "502 (Bad Gateway)") ||
		!strings.HasSuffix(r.Stderr,
			": no member answers so: check the address, and the proxy on the way\n") {
		t.Errorf("%d %s", r.Code, r.Stderr)
	}
}

// TestFailedStart: a start that fails writes nothing.
func TestFailedStart(t *testing.T) {
	t.Parallel()
	s := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	dir := t.TempDir()
	url := fmt.Sprintf("http://127.0.0.1:%d", proc.FreePort(t))
	own := []string{"--name=m2", "--listen-peer-urls=" + url,
		"--initial-advertise-peer-urls=" + url, "--log-outputs=stderr",
		"--data-dir=" + filepath.Join(dir, "data"), "--wal-dir=" + filepath.Join(dir, "wal")}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"the address is in use by another program",
			[]string{"--initial-cluster=m2=" + url, "--listen-client-urls=http://" + s.Addr(),
				"--advertise-client-urls=http://" + s.Addr()}},
		{"member count is unequal",
			[]string{"--initial-cluster=m2=" + url + ",m1=" + "http://" + s.PeerAddr(),
				"--initial-cluster-state=existing"}},
	} {
		r := proc.Run(t, untilTimeout,
			proc.Spec{Name: proc.Path(t, proc.Vigil), Args: append(c.args, own...)})
		lines := strings.Split(strings.TrimSuffix(r.Stderr, "\n"), "\n")
		if last := lines[len(lines)-1]; r.Code == 0 || !strings.HasPrefix(last, "vigil: ") ||
			!strings.Contains(last, c.want) {
			t.Errorf("%q: %d, %s", c.args, r.Code, last)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("%q: it left %v, %v", c.args, left, err)
		}
	}
}
