package main

import "vigil/server"

func securityFlags(c *server.Config) []*option {
	client, peer := &c.ClientTLS, &c.PeerTLS
	own := "the member makes no connections to itself"
	return []*option{
		file(&client.CertFile, "cert-file", "certificate that is shown to clients; read again when it changes, like all these files"),
		file(&client.KeyFile, "key-file", "its key"),
		boolean(&client.ClientCertAuth, "client-cert-auth", "require a certificate of clients; its common name is their user if they give no token"),
		unused("FILE", "client-cert-file", "", own),
		unused("FILE", "client-key-file", "", own),
		file(&client.CRLFile, "client-crl-file", "list of revoked certificates"),
		list(&client.AllowedHostname, "client-cert-allowed-hostname", "HOST,...", "host names, one of which a client's certificate must be valid for"),
		file(&client.TrustedCAFile, "trusted-ca-file", "authorities whose certificates are believed; requires a certificate of clients"),
		boolean(&client.Auto, "auto-tls", "encrypt with a certificate made at the first start, if none is given"),
		file(&peer.CertFile, "peer-cert-file", "certificate that is shown to other members"),
		file(&peer.KeyFile, "peer-key-file", "its key"),
		boolean(&peer.ClientCertAuth, "peer-client-cert-auth", "require a certificate of members that connect"),
		by("--peer-cert-file", file(&peer.ClientCertFile, "peer-client-cert-file", "another certificate for connections to other members")),
		by("--peer-key-file", file(&peer.ClientKeyFile, "peer-client-key-file", "its key")),
		file(&peer.TrustedCAFile, "peer-trusted-ca-file", "authorities whose certificates are believed; requires a certificate of members that connect"),
		list(&peer.AllowedCN, "peer-cert-allowed-cn", "CN,...", "common names, one of which the certificate of a member that connects must have"),
		list(&peer.AllowedHostname, "peer-cert-allowed-hostname", "HOST,...", "host names, one of which it must be valid for"),
		boolean(&peer.Auto, "peer-auto-tls", "encrypt with a certificate made at the first start, if none is given, and believe every one"),
		in(year, &c.SelfSignedValidity, "self-signed-cert-validity", "YEARS", "years that a certificate made here is valid", 255),
		file(&peer.CRLFile, "peer-crl-file", "list of revoked certificates"),
		boolean(&peer.SkipClientSAN, "peer-skip-client-san-verification", "do not compare the addresses in a member's certificate with where it connects from"),
		list(&c.CipherSuites, "cipher-suites", "NAME,...", "cipher suites of TLS 1.2, by their IANA names; none for a good choice"),
		list(&c.CORS, "cors", "ORIGIN,...", "origins that browsers may send requests from; * for all"),
		list(&c.HostWhitelist, "host-whitelist", "HOST,...", "host names that plain HTTP requests may be for; * for all"),
		oneOf(&c.TLSMinVersion, "tls-min-version", "least version of TLS: TLS1.2 or TLS1.3", "", "TLS1.2", "TLS1.3"),
		oneOf(&c.TLSMaxVersion, "tls-max-version", "highest version of TLS; none for the highest there is", "", "TLS1.2", "TLS1.3"),
	}
}
