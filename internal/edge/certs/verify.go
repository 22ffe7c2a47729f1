package certs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
)

// checkClientCert decides about a client's certificate after crypto/tls has found it valid.
func (o *Options) checkClientCert(st tls.ConnectionState, revoked map[string]bool) error {
	if len(st.PeerCertificates) == 0 {
		return nil // crypto/tls rejects this if a certificate is required
	}
	for _, cert := range st.PeerCertificates {
		if revoked[cert.SerialNumber.String()] {
			return fmt.Errorf("certificate %x of %q was revoked", cert.SerialNumber,
				cert.Subject.CommonName)
		}
	}
	if err := o.checkNames(st.PeerCertificates[0]); err != nil {
		return fmt.Errorf("client certificate authentication failed: %w", err)
	}
	return nil
}

// checkServerCert decides about the certificate of a member that was dialed, after crypto/tls has
// found it valid.
func (o *Options) checkServerCert(st tls.ConnectionState) error {
	switch {
	case len(o.AllowedCN) == 0 && len(o.AllowedHostname) == 0:
		return nil
	case len(st.VerifiedChains) == 0:
		return errors.New("member certificate authentication failed: the certificate has no " +
			"verified names to compare with the allowed ones: set the file of the trusted " +
			"authorities")
	}
	if err := o.checkNames(st.PeerCertificates[0]); err != nil {
		return fmt.Errorf("member certificate authentication failed: %w", err)
	}
	return nil
}

// checkNames compares the names in a certificate with the allowed ones.
func (o *Options) checkNames(cert *x509.Certificate) error {
	switch {
	case len(o.AllowedCN) > 0 && !slices.Contains(o.AllowedCN, cert.Subject.CommonName):
		return fmt.Errorf("common name %q is not allowed", cert.Subject.CommonName)
	case len(o.AllowedHostname) > 0 &&
		!slices.ContainsFunc(o.AllowedHostname,
			func(h string) bool { return cert.VerifyHostname(h) == nil }):
		return fmt.Errorf("the certificate of %q has none of the allowed names",
			cert.Subject.CommonName)
	}
	return nil
}

// checkAddress compares the addresses and host names in a certificate, if it has any, with the
// address of the client: a stolen certificate is of no use elsewhere.
func checkAddress(ctx context.Context, cert *x509.Certificate, from net.Addr) error {
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
	if err := checkHostNames(ctx, cert.DNSNames, tcp.IP.String()); err != nil {
		return fmt.Errorf("tls: %q does not match any of DNSNames %q (%w)", tcp.IP,
			cert.DNSNames, err)
	}
	return nil
}

// checkHostNames accepts an address if the DNS has one of the names for it, or the address for one
// of the names. A name with a wildcard is compared only with the names of the address.
func checkHostNames(ctx context.Context, names []string, addr string) error {
	known, err := net.DefaultResolver.LookupAddr(ctx, addr)
	for _, n := range known {
		n = strings.TrimSuffix(n, ".")
		for _, name := range names {
			if rest, wild := strings.CutPrefix(name, "*"); n == name ||
				wild && strings.HasSuffix(n, rest) {
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
		err = fmt.Errorf("its names are %q", known)
	}
	return err
}
