package certs

import (
	"errors"
	"fmt"
)

// Options names the certificate files of one kind of connection. Changed files are read again: new
// connections use the new content.
type Options struct {
	// CertFile and KeyFile are the certificate of a listener. Connections to other members use them
	// too, unless ClientCertFile and ClientKeyFile are set.
	CertFile, KeyFile             string
	ClientCertFile, ClientKeyFile string
	// TrustedCAFile holds the trusted certificate authorities.
	TrustedCAFile string
	// ClientCertAuth requires a certificate from every client.
	ClientCertAuth bool
	// If set, the certificate of a client, or of a member that is dialed, must have one of the
	// common names in AllowedCN, or be valid for one of the host names in AllowedHostname.
	AllowedCN, AllowedHostname []string
	// ServerName is the name that the certificate of a dialed server must be valid for. The default
	// is the host of its URL.
	ServerName string
	// CRLFile lists revoked certificates.
	CRLFile string
	// SkipClientSAN disables the comparison of a client's address with the addresses in its
	// certificate.
	SkipClientSAN bool
	// Auto generates a self-signed certificate and accepts any: it encrypts traffic but
	// authenticates nobody.
	Auto bool
}

// Serves reports whether listeners have a certificate, or will have a generated one.
func (o *Options) Serves() bool { return o.CertFile != "" || o.Auto }

// Validate reports options that exclude each other. It calls them by the names of the flags.
func (o *Options) Validate(k Kind) error {
	var errs []error
	bad := func(cond bool, format string, prefix string) {
		if cond {
			errs = append(errs, fmt.Errorf(format, prefix))
		}
	}
	files, checks := k.flagPrefix(), k.String()
	bad((o.CertFile == "") != (o.KeyFile == ""),
		"--%[1]scert-file and --%[1]skey-file go together", files)
	bad((o.ClientCertFile == "") != (o.ClientKeyFile == ""),
		"--%[1]sclient-cert-file and --%[1]sclient-key-file go together", files)
	names := len(o.AllowedCN) + len(o.AllowedHostname)
	bad(len(o.AllowedCN) > 0 && len(o.AllowedHostname) > 0,
		"--%[1]s-cert-allowed-cn and --%[1]s-cert-allowed-hostname exclude each other", checks)
	bad(names > 0 && !o.ClientCertAuth && o.TrustedCAFile == "",
		"--%[1]s-cert-allowed-cn and --%[1]s-cert-allowed-hostname require client certificates: "+
			"set the file of the trusted authorities", checks)
	return errors.Join(errs...)
}

// Kind is the kind of connections that certificates are used for.
type Kind int

// Clients are connections from clients, Peers connections between members.
const (
	Clients Kind = iota
	Peers
)

// String returns the name of the kind in flags and in the data directory.
func (k Kind) String() string {
	if k == Peers {
		return "peer"
	}
	return "client"
}

// flagPrefix returns the prefix of the flags that name files.
func (k Kind) flagPrefix() string {
	if k == Peers {
		return "peer-"
	}
	return ""
}
