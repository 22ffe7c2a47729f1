// Package reload provides TLS credentials that are loaded again when their files have changed.
package reload

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/credentials"
)

// Files names files in PEM format, and how the certificates of members are checked.
type Files struct {
	Cert, Key          string
	CA                 string
	ServerName         string
	InsecureSkipVerify bool
}

// Load returns the current content of the files.
func (f *Files) Load() (*tls.Config, error) {
	c := &tls.Config{ServerName: f.ServerName, InsecureSkipVerify: f.InsecureSkipVerify}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("CA: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA: no certificate in %s", f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, fmt.Errorf("certificate %s and key %s: %w", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// stamp returns a text that differs when the files have changed.
func (f *Files) stamp() (text string) {
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			text += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), ";")
		}
	}
	return text
}

// Credentials returns credentials that each new connection loads again if the files have changed.
// If that fails, it calls failed and uses the last ones.
func Credentials(files Files, load func() (*tls.Config, error),
	failed func(error)) credentials.TransportCredentials {
	return &reloading{TransportCredentials: credentials.NewTLS(nil), files: files, load: load,
		failed: failed}
}

type reloading struct {
	credentials.TransportCredentials
	files  Files
	load   func() (*tls.Config, error)
	failed func(error)
	mu     struct {
		sync.Mutex
		stamp string
		last  credentials.TransportCredentials
	}
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn,
	credentials.AuthInfo, error) {
	creds, err := r.current()
	if err != nil {
		return nil, nil, err
	}
	return creds.ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r *reloading) Clone() credentials.TransportCredentials {
	return &reloading{TransportCredentials: r.TransportCredentials.Clone(), files: r.files,
		load: r.load, failed: r.failed}
}

func (r *reloading) current() (credentials.TransportCredentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp := r.files.stamp()
	if r.mu.last != nil && stamp == r.mu.stamp {
		return r.mu.last, nil
	}
	c, err := r.load()
	if err != nil {
		if r.mu.last == nil {
			return nil, err
		}
		r.failed(err)
		return r.mu.last, nil
	}
	r.mu.stamp, r.mu.last = stamp, credentials.NewTLS(c)
	return r.mu.last, nil
}
