package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLSFiles names files in PEM format. Each new connection checks them, so renewed certificates need no restart. If the
// files are unusable then, the client logs the error and uses the last usable ones.
type TLSFiles struct {
	// Cert and Key are the client's certificate and its key: both or none.
	Cert, Key string
	// CA holds the certificates of trusted authorities. Default: those of the system.
	CA string
	// ServerName is the name expected in the member's certificate. Default: the host of the endpoint.
	ServerName string
	// InsecureSkipVerify accepts any certificate: traffic is encrypted, but the member is not authenticated. For tests.
	InsecureSkipVerify bool
}

func (f *TLSFiles) set() bool { return *f != TLSFiles{} }

func (f *TLSFiles) validate() (wrong []error) {
	if (f.Cert == "") != (f.Key == "") {
		wrong = append(wrong, invalid("TLSFiles: Cert is %q and Key is %q: set both or none", f.Cert, f.Key))
	}
	if f.set() && len(wrong) == 0 {
		if _, err := f.load(); err != nil {
			wrong = append(wrong, err)
		}
	}
	return wrong
}

// Config returns the current content of the files, for connections that a program makes itself.
func (f *TLSFiles) Config() (*tls.Config, error) { return f.load() }

func (f *TLSFiles) load() (*tls.Config, error) {
	c := &tls.Config{ServerName: f.ServerName, InsecureSkipVerify: f.InsecureSkipVerify}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, invalid("TLSFiles: CA: %v", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, invalid("TLSFiles: CA: no certificate in %s", f.CA)
		}
	}
	if f.Cert != "" {
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			return nil, invalid("TLSFiles: certificate %s and key %s: %v", f.Cert, f.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// stamp returns a text that differs when the files have changed.
func (f *TLSFiles) stamp() (s string) {
	for _, name := range []string{f.Cert, f.Key, f.CA} {
		if name == "" {
			continue
		}
		if info, err := os.Stat(name); err == nil {
			s += fmt.Sprint(info.ModTime().UnixNano(), info.Size(), ";")
		}
	}
	return s
}

// transport returns the credentials of connections.
func (c *Config) transport() credentials.TransportCredentials {
	if !c.secure() {
		return insecure.NewCredentials()
	}
	if !c.TLSFiles.set() {
		return credentials.NewTLS(c.TLS) // a nil configuration is the default one
	}
	return &reloading{TransportCredentials: credentials.NewTLS(nil), files: c.TLSFiles, warn: func(err error) {
		c.Logger.Warn("keeping the previous TLS files", "error", err)
	}}
}

// reloading holds credentials that are read again when the files have changed.
type reloading struct {
	credentials.TransportCredentials
	files TLSFiles
	warn  func(error)
	mu    struct {
		sync.Mutex
		stamp string
		last  credentials.TransportCredentials
	}
}

// ClientHandshake implements credentials.TransportCredentials.
func (r *reloading) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	creds, err := r.current()
	if err != nil {
		return nil, nil, err
	}
	return creds.ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (r *reloading) Clone() credentials.TransportCredentials {
	return &reloading{TransportCredentials: r.TransportCredentials.Clone(), files: r.files, warn: r.warn}
}

func (r *reloading) current() (credentials.TransportCredentials, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	stamp := r.files.stamp()
	if r.mu.last != nil && stamp == r.mu.stamp {
		return r.mu.last, nil
	}
	c, err := r.files.load()
	if err != nil {
		if r.mu.last == nil {
			return nil, err
		}
		r.warn(err)
		return r.mu.last, nil
	}
	r.mu.stamp, r.mu.last = stamp, credentials.NewTLS(c)
	return r.mu.last, nil
}
