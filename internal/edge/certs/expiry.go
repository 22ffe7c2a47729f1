package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"time"
)

// Expiry is when the content of a certificate file that is in use expires.
type Expiry struct {
	// Use is "server" for the certificate of listeners, "client" for a separate certificate of
	// dialed connections, and "authority" for the trusted authorities.
	Use string
	End time.Time
	// Subject is the subject of the certificate that expires at End.
	Subject string
	// Generated is set if the member generated the certificate.
	Generated bool
}

// Expiries returns the expiries of the present content of the files. It reads them again if they
// changed. Of a certificate and its intermediates the first expiry counts; of the authorities the
// last one, because an expired authority next to its successor does no harm.
func (s *Store) Expiries() (list []Expiry) {
	s.currentConfigs()
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &s.mu.loaded
	for _, c := range []struct {
		use  string
		pair *tls.Certificate
	}{{"server", l.pair}, {"client", l.clientPair}} {
		if c.pair != nil {
			first := firstExpiry(c.pair)
			list = append(list, Expiry{c.use, first.NotAfter, first.Subject.String(),
				c.use == "server" && s.auto != nil})
		}
	}
	if l.pool != nil {
		list = append(list, Expiry{Use: "authority", End: l.poolEnd.NotAfter,
			Subject: l.poolEnd.Subject.String()})
	}
	return list
}

// fileOf returns the file whose content has a use.
func (o *Options) fileOf(use string) string {
	switch use {
	case "client":
		return o.ClientCertFile
	case "authority":
		return o.TrustedCAFile
	}
	return o.CertFile
}

// firstExpiry returns the certificate of a chain that expires first.
func firstExpiry(pair *tls.Certificate) *x509.Certificate {
	first := new(x509.Certificate)
	for _, der := range pair.Certificate {
		if c, err := x509.ParseCertificate(der); err == nil &&
			(first.NotAfter.IsZero() || c.NotAfter.Before(first.NotAfter)) {
			first = c
		}
	}
	return first
}

// lastExpiry returns the certificate in a PEM file that expires last.
func lastExpiry(text []byte) *x509.Certificate {
	last := new(x509.Certificate)
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" &&
			err == nil && c.NotAfter.After(last.NotAfter) {
			last = c
		}
	}
	return last
}
