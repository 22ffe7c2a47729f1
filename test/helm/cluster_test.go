package helm

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"

	"vigil/test/proc"
)

// startTimeout bounds the start of a cluster on a busy machine.
const startTimeout = 2 * time.Minute

// members returns the arguments of all pods, with the addresses and files of this machine, and the
// clients' addresses.
func members(t *testing.T, dir string, set ...string) (args [][]string, clients []string) {
	t.Helper()
	s := get[apps.StatefulSet](t, objects(t, "vigil", set...), "StatefulSet vigil").Spec
	n := int(*s.Replicas)
	var names []string
	own := make([][]string, n)
	for i := range n {
		client, peer := fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t)),
			fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t))
		pod := fmt.Sprintf("vigil-%d.vigil-peers.prod.svc.cluster.local", i)
		names = append(names, pod+":2379", client, pod+":2380", peer)
		clients = append(clients, client)
		own[i] = []string{"$(POD_NAME)", fmt.Sprintf("vigil-%d", i), "/var/lib/vigil",
			filepath.Join(dir, fmt.Sprint(i)),
			"/etc/vigil", filepath.Join(dir, "certs"), "0.0.0.0:2379", client, "0.0.0.0:2380", peer,
			"0.0.0.0:2381", fmt.Sprintf("127.0.0.1:%d", proc.FreePort(t))}
	}
	for i := range n {
		var a []string
		for _, arg := range s.Template.Spec.Containers[0].Args {
			a = append(a, strings.NewReplacer(names...).Replace(strings.NewReplacer(own[i]...).Replace(arg)))
		}
		args = append(args, a)
	}
	return args, clients
}

// run starts a process of each member and waits until all serve.
func run(t *testing.T, args [][]string) {
	t.Helper()
	var all []*proc.Process
	for _, a := range args {
		p, err := proc.Launch(append([]string{proc.Path(t, proc.Vigil)}, a...), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Kill)
		all = append(all, p)
	}
	for i, p := range all {
		select {
		case <-p.Log().Wait("ready to serve client requests"):
		case <-p.Exited():
			t.Fatalf("member %d exited with %d:\n%s", i, p.Code(), p.Log().Tail(20))
		case <-time.After(startTimeout):
			t.Fatalf("member %d is not ready:\n%s", i, p.Log().Tail(20))
		}
	}
}

func vigilctl(t *testing.T, args ...string) string {
	t.Helper()
	r := proc.Run(t, startTimeout, proc.Spec{Name: proc.Path(t, proc.Vigilctl), Args: args})
	if r.Code != 0 {
		t.Fatalf("vigilctl %q: exit code %d: %s%s", args, r.Code, r.Stdout, r.Stderr)
	}
	return r.Stdout
}

// TestCluster starts the members with the arguments of the pods, plain and with certificates like
// those of cert-manager.
func TestCluster(t *testing.T) {
	for name, set := range map[string][]string{
		"plain": nil,
		"tls":   {"tls.enabled=true", "tls.certManager.enabled=true"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			var flags []string
			if name == "tls" {
				issue(t, filepath.Join(dir, "certs"))
				at := func(f string) string { return filepath.Join(dir, "certs", "client", f) }
				flags = []string{"--cacert", at("ca.crt"), "--cert", at("tls.crt"),
					"--key", at("tls.key")}
			}
			args, clients := members(t, dir, set...)
			run(t, args)
			for i, c := range clients {
				vigilctl(t, append(flags, "--endpoints", c, "put", "k", fmt.Sprint(i))...)
			}
			if got := vigilctl(t,
				append(flags, "--endpoints", clients[0], "get", "k",
					"--print-value-only")...); got != "2\n" {
				t.Errorf("got %q", got)
			}
			if got := vigilctl(t,
				append(flags, "--endpoints", clients[0], "member", "list")...); strings.Count(got,
				"started") != 3 {
				t.Errorf("members:\n%s", got)
			}
		})
	}
}

// issue writes an authority and the certificates of server, peer and client, in the files of a
// secret.
func issue(t *testing.T, dir string) {
	t.Helper()
	caKey, ca := sign(t,
		&x509.Certificate{IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			Subject: pkix.Name{CommonName: "ca"}}, nil, nil)
	both := []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	local := []net.IP{net.IPv4(127, 0, 0, 1)}
	for name, c := range map[string]*x509.Certificate{
		"server": {Subject: pkix.Name{CommonName: "vigil"}, ExtKeyUsage: both, IPAddresses: local},
		"peer": {Subject: pkix.Name{CommonName: "vigil-peer"}, ExtKeyUsage: both,
			IPAddresses: local},
		"client": {Subject: pkix.Name{CommonName: "vigil-client"}, ExtKeyUsage: both[1:]},
	} {
		c.KeyUsage = x509.KeyUsageDigitalSignature
		key, signed := sign(t, c, ca, caKey)
		der, err := x509.MarshalECPrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(at, 0o700); err != nil {
			t.Fatal(err)
		}
		for file, block := range map[string]*pem.Block{
			"tls.crt": {Type: "CERTIFICATE", Bytes: signed.Raw},
			"ca.crt":  {Type: "CERTIFICATE", Bytes: ca.Raw},
			"tls.key": {Type: "EC PRIVATE KEY", Bytes: der},
		} {
			if err := os.WriteFile(filepath.Join(at, file), pem.EncodeToMemory(block),
				0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// sign makes a key and its certificate, signed by the parent or by itself.
func sign(t *testing.T, c, parent *x509.Certificate, by *ecdsa.PrivateKey) (*ecdsa.PrivateKey,
	*x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if parent == nil {
		parent, by = c, key
	}
	c.SerialNumber, _ = rand.Int(rand.Reader, big.NewInt(1<<60))
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, signed
}
