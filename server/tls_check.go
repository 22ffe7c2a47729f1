package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"slices"
	"strings"
)

// admit decides about the certificate of somebody who connects, after crypto/tls has found it valid.
func (c *TLS) admit(st tls.ConnectionState, revoked map[string]bool) error {
	if len(st.PeerCertificates) == 0 {
		return nil // required or not: crypto/tls has seen to that
	}
	for _, cert := range st.PeerCertificates {
		if revoked[cert.SerialNumber.String()] {
			return fmt.Errorf("certificate %x of %q was revoked", cert.SerialNumber, cert.Subject.CommonName)
		}
	}
	cert := st.PeerCertificates[0]
	switch {
	case len(c.AllowedCN) > 0 && !slices.Contains(c.AllowedCN, cert.Subject.CommonName):
		return fmt.Errorf("client certificate authentication failed: common name %q is not allowed", cert.Subject.CommonName)
	case len(c.AllowedHostname) > 0 && !slices.ContainsFunc(c.AllowedHostname, func(h string) bool { return cert.VerifyHostname(h) == nil }):
		return fmt.Errorf("client certificate authentication failed: that of %q has none of the names that are allowed", cert.Subject.CommonName)
	}
	return nil
}

// checkOrigin compares the addresses and host names in a certificate, if it has any, with where it comes
// from: a stolen certificate is of no use elsewhere.
func checkOrigin(ctx context.Context, cert *x509.Certificate, from net.Addr) error {
	tcp, ok := from.(*net.TCPAddr)
	if !ok || len(cert.IPAddresses) == 0 && len(cert.DNSNames) == 0 {
		return nil
	}
	if slices.ContainsFunc(cert.IPAddresses, tcp.IP.Equal) {
		return nil
	}
	if len(cert.DNSNames) == 0 {
		return fmt.Errorf("certificate is valid for %v, not %v", cert.IPAddresses, tcp.IP)
	}
	err := comesFrom(ctx, cert.DNSNames, tcp.IP.String())
	if err != nil {
		return fmt.Errorf("tls: %q does not match any of DNSNames %q (%w)", tcp.IP, cert.DNSNames, err)
	}
	return nil
}

// comesFrom reports whether one of the names stands for an address, in one direction of the DNS or the
// other. Names with a wildcard are only compared with those of the address.
func comesFrom(ctx context.Context, names []string, addr string) error {
	known, err := net.DefaultResolver.LookupAddr(ctx, addr)
	for _, n := range known {
		n = strings.TrimSuffix(n, ".")
		for _, name := range names {
			if rest, wild := strings.CutPrefix(name, "*"); n == name || wild && strings.HasSuffix(n, rest) {
				return nil
			}
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "*.") {
			continue
		}
		addrs, lookup := net.DefaultResolver.LookupHost(ctx, name)
		if lookup != nil {
			err = lookup
		}
		if slices.Contains(addrs, addr) {
			return nil
		}
	}
	if err == nil {
		err = fmt.Errorf("it is called %q", known)
	}
	return err
}
