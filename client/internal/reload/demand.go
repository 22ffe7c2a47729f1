package reload

import (
	"crypto/tls"
	"sync/atomic"
)

// NoteDemand returns a TLS configuration that chooses among its certificates as before, and notes
// that none has fitted. The member reports only after the handshake that it lacks one, and the end
// of the connection can overtake that report.
func NoteDemand(c *tls.Config, demanded *atomic.Bool) *tls.Config {
	if c == nil {
		c = &tls.Config{}
	}
	if c.GetClientCertificate != nil {
		return c
	}
	c = c.Clone()
	c.GetClientCertificate = func(info *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		for i := range c.Certificates {
			if info.SupportsCertificate(&c.Certificates[i]) == nil {
				return &c.Certificates[i], nil
			}
		}
		demanded.Store(true)
		return &tls.Certificate{}, nil
	}
	return c
}
