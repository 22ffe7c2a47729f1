package main

import "vigil/server"

func securityFlags(c *server.Config) []*option {
	client, peer := &c.ClientTLS, &c.PeerTLS
	own := "the member makes no connections to itself"
	return []*option{
		file(&client.CertFile, "cert-file", "certificate for clients; read again when it changes, like all these files"),
		file(&client.KeyFile, "key-file", "key of the certificate for clients"),
		boolean(&client.ClientCertAuth, "client-cert-auth", "require a client certificate; without a token, its common name is the user"),
		unused("FILE", "client-cert-file", "", own),
		unused("FILE", "client-key-file", "", own),
		file(&client.CRLFile, "client-crl-file", "list of revoked certificates"),
		list(&client.AllowedHostname, "client-cert-allowed-hostname", "HOST,...", "allowed host names in client certificates"),
		file(&client.TrustedCAFile, "trusted-ca-file", "trusted certificate authorities of clients; requires a client certificate"),
		boolean(&client.Auto, "auto-tls", "encrypt with a certificate generated at the first start, if none is given"),
		file(&peer.CertFile, "peer-cert-file", "certificate for other members"),
		file(&peer.KeyFile, "peer-key-file", "key of the certificate for other members"),
		boolean(&peer.ClientCertAuth, "peer-client-cert-auth", "require a certificate of connecting members"),
		showDefault("--peer-cert-file", file(&peer.ClientCertFile, "peer-client-cert-file", "separate certificate for connections to other members")),
		showDefault("--peer-key-file", file(&peer.ClientKeyFile, "peer-client-key-file", "key of the separate certificate")),
		file(&peer.TrustedCAFile, "peer-trusted-ca-file", "trusted certificate authorities of members; requires a certificate of connecting members"),
		list(&peer.AllowedCN, "peer-cert-allowed-cn", "CN,...", "allowed common names in certificates of other members"),
		list(&peer.AllowedHostname, "peer-cert-allowed-hostname", "HOST,...", "allowed host names in certificates of other members"),
		boolean(&peer.Auto, "peer-auto-tls", "encrypt with a certificate generated at the first start, if none is given, and accept every certificate"),
		wholeUnits(year, &c.SelfSignedValidity, "self-signed-cert-validity", "YEARS", "years that a generated certificate is valid", 1, 255),
		file(&peer.CRLFile, "peer-crl-file", "list of revoked certificates"),
		boolean(&peer.SkipClientSAN, "peer-skip-client-san-verification", "do not compare the addresses in a member's certificate with its address"),
		list(&c.CipherSuites, "cipher-suites", "NAME,...", "cipher suites of TLS 1.2, by their IANA names; empty for the default choice of Go"),
		list(&c.CORS, "cors", "ORIGIN,...", "allowed origins of browsers' requests; * for all"),
		list(&c.HostWhitelist, "host-whitelist", "HOST,...", "allowed host names of plain HTTP requests; * for all"),
		oneOf(&c.TLSMinVersion, "tls-min-version", "lowest version of TLS: TLS1.2 or TLS1.3", "", "TLS1.2", "TLS1.3"),
		oneOf(&c.TLSMaxVersion, "tls-max-version", "highest version of TLS; empty for the highest supported", "", "TLS1.2", "TLS1.3"),
	}
}
