package cluster

import (
	"crypto/x509"
	"net"
	"slices"
	"strings"
	"testing"

	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// flags are those of a member that shows the certificate NAME to others and asks them for theirs.
func flags(a *pki.Authority, name string) []string {
	return []string{"--peer-cert-file=" + a.File(name+".pem"),
		"--peer-key-file=" + a.File(name+"-key.pem"),
		"--peer-trusted-ca-file=" + a.File("authority.pem"), "--peer-client-cert-auth"}
}

// Members speak mutual TLS. One with a certificate that is not believed, is not the name that is
// allowed, or was revoked, is left outside, with a line on both sides; new files are used without a
// restart.
func TestPeerTLS(t *testing.T) {
	t.Parallel()
	ca, other := pki.New(t), pki.New(t)
	ca.Issue("member", nil)
	other.Issue("member", nil)
	somebody := ca.Issue("somebody", nil)
	ca.Revoke("crl.der")
	g := run(&group{t: t, secure: true,
		args: append(flags(ca, "member"), "--peer-cert-allowed-cn=member,somebody,away",
			"--peer-crl-file="+ca.File("crl.der"))}, 3)
	for _, m := range g.list {
		g.put(m, m.name, "x")
	}
	g.agree()
	lead := g.leader()
	m := g.others(lead)[0]
	good := slices.Clone(m.cfg.Args)
	refused := func(args []string, here, there string) {
		t.Helper()
		m.Kill()
		m.SetArgs(append(slices.Clone(good), args...)...)
		m.Launch()
		g.until("a line on both sides", func() bool {
			return strings.Contains(lead.Log().String(), here) &&
				strings.Contains(m.Log().String(), there)
		})
	}
	strange := flags(other, "member")
	strange[2] = "--peer-trusted-ca-file=" + ca.File("authority.pem")
	refused(strange, "unknown authority", "unknown certificate authority")
	if proc.Subject() == proc.Vigil {
		// A certificate that belongs to another address, for dialing.
		ca.Issue("away", func(c *x509.Certificate) {
			c.IPAddresses = []net.IP{net.IPv4(192, 0, 2,
				1)}
		})
		refused([]string{"--peer-client-cert-file=" + ca.File("away.pem"),
			"--peer-client-key-file=" + ca.File("away-key.pem")}, "", "bad certificate")
		// A listener with a name that is not allowed: the others do not dial it. Its own
		// connections have an allowed name.
		ca.Issue("stranger", nil)
		refused(append(flags(ca, "stranger"), "--peer-client-cert-file="+ca.File("member.pem"),
			"--peer-client-key-file="+ca.File("member-key.pem")),
			`common name \"stranger\" is not allowed`, "bad certificate")
		ca.Revoke("crl.der", somebody)
		// The others have shown a line like it within the minute.
		refused(flags(ca, "somebody"), "", "bad certificate")
	}
	m.Kill()
	// The files of all are replaced while they run.
	ca.Issue("member", nil)
	m.SetArgs(good...)
	m.Restart()
	for _, m := range g.list {
		g.put(m, m.name, "y")
	}
	g.agree()
}

func TestPeerAutoTLS(t *testing.T) {
	t.Parallel()
	g := run(&group{t: t, secure: true, args: []string{"--peer-auto-tls"}}, 3)
	for _, m := range g.list {
		g.put(m, m.name, "x")
	}
	g.agree()
}
