package peer

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"vigil/internal/member/calls"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t}
	a.cert, a.key = a.make(&x509.Certificate{Subject: pkix.Name{CommonName: "authority"},
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign}, nil, nil)
	return a
}

func (a *authority) make(c, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate,
	*ecdsa.PrivateKey) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	if parent == nil {
		parent, by = c, key
	}
	c.SerialNumber = big.NewInt(time.Now().UnixNano())
	c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert, key
}

// config is what a member with a certificate of the authority uses in both directions.
func (a *authority) config(name string) *tls.Config {
	cert, key := a.make(&x509.Certificate{Subject: pkix.Name{CommonName: name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		a.cert, a.key)
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{cert.Raw},
		PrivateKey: key}},
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}
}

func secured(server, client *tls.Config) func(*Options) {
	return func(o *Options) {
		o.ServerTLS = func() *tls.Config { return server }
		o.ClientTLS = func() *tls.Config { return client }
	}
}

func TestMutualTLS(t *testing.T) {
	ca := newAuthority(t)
	conf := ca.config("member")
	a, b := pair(t, secured(conf, conf))
	up(t, a, b)
	up(t, b, a)
	a.send(app(a.id, b.id, 1, 1<<20), msg(raftpb.MsgHeartbeat, a.id, b.id, 2))
	until(t, "both arrived", func() bool { return len(b.sink.all()) == 2 })
	got, err := (&Client{TLS: func() *tls.Config { return conf }}).Call(t.Context(), b.url,
		calls.FirstOpen, nil)
	if !errors.Is(err, CodeUnsupported) {
		t.Errorf("%+v, %v", got, err)
	}
}

// A program with no certificate, or one of another authority, or a name that is not allowed, or
// speaks no TLS at all, is refused with a line on both sides.
func TestUnknownCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	good := ca.config("member")
	strange := other.config("stranger")
	strange.RootCAs = good.RootCAs // it trusts the members, they do not trust it
	none := &tls.Config{RootCAs: good.RootCAs}
	guarded := good.Clone()
	guarded.VerifyConnection = func(s tls.ConnectionState) error {
		if cn := s.PeerCertificates[0].Subject.CommonName; cn != "member" {
			return errors.New("the name " + cn + " is not allowed")
		}
		return nil
	}
	for _, c := range []struct {
		name           string
		server, client *tls.Config
		here, there    string // in the lines of the one that refuses and of the one that is refused
	}{
		{"another authority", good, strange, "unknown authority", "unknown certificate authority"},
		{"none", good, none, "didn't provide a certificate", "certificate required"},
		{"a name that is not allowed", guarded, ca.config("somebody"),
			"the name somebody is not allowed", "bad certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := newMember(t, 0xa, secured(good, c.client)),
				newMember(t, 0xb, secured(c.server, good))
			a.SetMembers(1, []Member{{b.id, []string{b.url}}}, nil)
			b.SetMembers(1, []Member{{a.id, []string{"http://127.0.0.1:1"}}}, nil)
			b.start(t)
			a.start(t)
			until(t, "refused three times",
				func() bool { n, _ := b.Refused(); return n["no handshake"] >= 3 })
			until(t, "both said so", func() bool {
				return len(b.logs.lines("rejected connection on peer endpoint", c.here)) > 0 &&
					len(a.logs.lines("failed to connect to peer", c.there)) > 0
			})
			if n, m := len(b.logs.lines("rejected connection")),
				len(a.logs.lines("failed to connect")); n != 1 || m != 1 {
				t.Errorf("%d lines on the side that refuses, %d on the other", n, m)
			}
		})
	}
	t.Run("plain to TLS", func(t *testing.T) {
		a, b := newMember(t, 0xa), newMember(t, 0xb, secured(good, good))
		a.SetMembers(1, []Member{{b.id, []string{strings.Replace(b.url, "https", "http", 1)}}}, nil)
		b.start(t)
		a.start(t)
		until(t, "both said so", func() bool {
			return len(b.logs.lines("rejected connection on peer endpoint",
				"speaks no TLS: an https peer URL is needed")) > 0 &&
				len(a.logs.lines("failed to connect",
					"speaks no TLS: an https peer URL is needed")) > 0
		})
	})
	t.Run("TLS to plain", func(t *testing.T) {
		a, b := newMember(t, 0xa, secured(good, good)), newMember(t, 0xb)
		a.SetMembers(1, []Member{{b.id, []string{strings.Replace(b.url, "http", "https", 1)}}}, nil)
		b.start(t)
		a.start(t)
		until(t, "both said so", func() bool {
			return len(b.logs.lines("rejected connection on peer endpoint", "speaks TLS")) > 0 &&
				len(a.logs.lines("failed to connect", "TLS handshake")) > 0
		})
	})
	t.Run("no certificates here", func(t *testing.T) {
		a := newMember(t, 0xa)
		a.SetMembers(1, []Member{{0xb, []string{"https://127.0.0.1:1"}}}, nil)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		if err := a.ServeTLS(l); err == nil || !strings.Contains(err.Error(), "no certificates") {
			t.Error(err)
		}
	})
}

// Certificates may change while the transport runs: the next connection uses the new ones.
func TestCertificatesAreReloaded(t *testing.T) {
	old, next := newAuthority(t), newAuthority(t)
	var conf atomic.Pointer[tls.Config]
	conf.Store(old.config("member"))
	edit := func(o *Options) { o.ServerTLS, o.ClientTLS = conf.Load, conf.Load }
	a, b := pair(t, edit)
	up(t, a, b)
	conf.Store(next.config("member"))
	before := a.about(b.id).Connects
	b.hangUp(t, a.id)
	until(t, "connected anew",
		func() bool { s := a.about(b.id); return s.Connects > before && !s.Connected.IsZero() })
	c := Client{TLS: func() *tls.Config { return old.config("member") }}
	if _, err := c.Call(context.Background(), b.url, calls.FirstOpen, nil); err == nil ||
		errors.Is(err, CodeUnsupported) {
		t.Errorf("the old authority is still trusted: %v", err)
	}
}

// A unix socket does as well.
func TestUnixSocket(t *testing.T) {
	a, b := newMember(t, 0xa), newMember(t, 0xb)
	path := t.TempDir() + "/peer"
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- b.Serve(l) }()
	b.SetMembers(1, []Member{{a.id, []string{a.url}}}, nil)
	a.SetMembers(1, []Member{{b.id, []string{"unix://" + path}}}, nil)
	a.start(t)
	b.start(t)
	up(t, a, b)
	b.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
