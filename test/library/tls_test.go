package library

import (
	"crypto/tls"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vigil/client"
	"vigil/test/proc"
	"vigil/test/proc/pki"
)

// dialTimeout is of clients that cannot connect.
const dialTimeout = 300 * time.Millisecond

func connect(t *testing.T, cfg client.Config) *client.Client {
	t.Helper()
	c, err := client.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestTLS: certificates that are replaced while the client runs are used for the next connection,
// and what is wrong with TLS is said.
func TestTLS(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		t.Parallel()
		ca, stranger := pki.New(t), pki.New(t)
		ca.Issue("server", nil)
		ca.Issue("client", nil)
		stranger.Issue("client", nil)
		cfg := proc.Config{Program: p, Memory: true, ClientPort: proc.FreePort(t)}
		url := fmt.Sprintf("https://127.0.0.1:%d", cfg.ClientPort)
		cfg.Args = []string{"--listen-client-urls=" + url, "--advertise-client-urls=" + url,
			"--client-cert-auth",
			"--cert-file=" + ca.File("server.pem"), "--key-file=" + ca.File("server-key.pem"),
			"--trusted-ca-file=" + ca.File("authority.pem")}
		s, plain := proc.Start(t, cfg), proc.Start(t, proc.Config{Program: p, Memory: true})

		files := client.TLSFiles{Cert: stranger.File("client.pem"),
			Key: stranger.File("client-key.pem"), CA: ca.File("authority.pem")}
		k := connect(t, client.Config{Endpoints: []string{s.Addr()}, TLSFiles: files,
			DialTimeout: dialTimeout})
		if _, err := k.Put(ctx(t), "k", nil); !errors.Is(err, client.ErrUnreachable) {
			t.Fatal(err)
		}
		// The files change under the client.
		pki.In(t, filepath.Dir(stranger.File("x"))).Issue("client", nil) // still a stranger's
		if _, err := k.Put(ctx(t), "k", nil); !errors.Is(err, client.ErrUnreachable) {
			t.Fatal(err)
		}
		replace(t, ca, stranger)
		deadline := time.Now().Add(patience)
		for {
			_, err := k.Put(ctx(t), "k", nil)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
		for _, tc := range []struct {
			name, says string
			cfg        client.Config
		}{
			{"an authority that is not the server's",
				"authority of the member's certificate is not known",
				client.Config{Endpoints: []string{url},
					TLSFiles: client.TLSFiles{CA: stranger.File("authority.pem")}}},
			{"plain to TLS", "write https://",
				client.Config{Endpoints: []string{"http://" + s.Addr()}}},
			{"TLS to plain", "write http://",
				client.Config{Endpoints: []string{"https://" + plain.Addr()}}},
			{"another name", "match other",
				client.Config{Endpoints: []string{url},
					TLSFiles: client.TLSFiles{CA: ca.File("authority.pem"), ServerName: "other"}}},
			{"another name in a ready configuration", "match other",
				client.Config{Endpoints: []string{url},
					TLS: &tls.Config{RootCAs: ca.Client("").RootCAs, ServerName: "other"}}},
		} {
			tc.cfg.DialTimeout = dialTimeout
			k := connect(t, tc.cfg)
			for end := time.Now().Add(patience); ; {
				_, err := k.Put(ctx(t), "k", nil)
				if errors.Is(err, client.ErrUnreachable) && strings.Contains(err.Error(), tc.says) {
					break
				}
				// A connection may fail later than the call.
				if !errors.Is(err, client.ErrUnreachable) || time.Now().After(end) {
					t.Errorf("%s: %v", tc.name, err)
					break
				}
			}
		}
	})
}

// replace puts the client's certificate of one authority where another's is.
func replace(t *testing.T, from, to *pki.Authority) {
	t.Helper()
	for _, name := range []string{"client-key.pem", "client.pem"} {
		to.Write(name, read(t, from.File(name)))
	}
}

// TestSocket: a file instead of an address.
func TestSocket(t *testing.T) {
	url := "unix://" + filepath.Join(proc.Dir(t), "socket")
	proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--listen-client-urls=" + url, "--advertise-client-urls=" + url}})
	k := connect(t, client.Config{Endpoints: []string{url}})
	if _, err := k.Put(ctx(t), "k", nil); err != nil {
		t.Fatal(err)
	}
	if err := k.Sync(ctx(t)); err != nil {
		t.Fatal(err)
	}
	if e := k.Endpoints(); len(e) != 1 {
		t.Errorf("the member is known as %q", e)
	}
}

// TestSync: one member is enough to find the others, and those found are used.
func TestSync(t *testing.T) {
	on(t, func(t *testing.T, p proc.Program) {
		t.Parallel()
		c := start(t, p, 3)
		k := connect(t, client.Config{Endpoints: []string{c.members[0].Addr()},
			SyncInterval: 50 * time.Millisecond})
		for end := time.Now().Add(patience); len(k.Endpoints()) < 3; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("only %v", k.Endpoints())
			}
		}
		c.members[0].Kill()
		for end := time.Now().Add(patience); ; {
			if _, err := k.Put(ctx(t), "k", nil); err == nil {
				break
			} else if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	})
}
