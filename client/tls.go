package client

import (
	"crypto/tls"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"vigil/client/internal/reload"
)

// TLSFiles names files in PEM format. Each new connection checks them, so renewed certificates need
// no restart. If the files are unusable then, the client logs the error and uses the last usable
// ones.
type TLSFiles struct {
	// Cert and Key are the client's certificate and its key: both or none.
	Cert, Key string
	// CA holds the certificates of trusted authorities. By default the system's authorities are
	// trusted.
	CA string
	// ServerName is the name expected in the member's certificate. Default: the host of the
	// endpoint.
	ServerName string
	// InsecureSkipVerify accepts any certificate: traffic is encrypted, but the member is not
	// authenticated. For tests.
	InsecureSkipVerify bool
}

func (f *TLSFiles) set() bool { return *f != TLSFiles{} }

func (f *TLSFiles) validate() (wrong []error) {
	if (f.Cert == "") != (f.Key == "") {
		wrong = append(wrong,
			invalid("TLSFiles: Cert is %q and Key is %q: set both or none", f.Cert, f.Key))
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
	c, err := (*reload.Files)(f).Load()
	if err != nil {
		return nil, invalid("TLSFiles: %v", err)
	}
	return c, nil
}

// transport returns the credentials of connections. demanded becomes true when a member has
// demanded a certificate that the configuration lacks.
func (c *Config) transport(demanded *atomic.Bool) credentials.TransportCredentials {
	if !c.secure() {
		return insecure.NewCredentials()
	}
	if !c.TLSFiles.set() {
		return reload.NameOwner(credentials.NewTLS(reload.NoteDemand(c.TLS, demanded)))
	}
	f := c.TLSFiles
	load := func() (*tls.Config, error) {
		config, err := f.load()
		return reload.NoteDemand(config, demanded), err
	}
	return reload.NameOwner(reload.Credentials(reload.Files(f), load,
		func(err error) { c.Logger.Warn("keeping the previous TLS files", "error", err) }))
}
