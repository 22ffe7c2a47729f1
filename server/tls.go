package server

import (
	"errors"
	"slices"

	"vigil/internal/edge/certs"
)

// TLS names the certificate files of one kind of connection.
type TLS = certs.Options

// tlsSettings returns the settings of all TLS connections.
func (c *Config) tlsSettings() certs.Settings {
	return certs.Settings{MinVersion: c.TLSMinVersion, MaxVersion: c.TLSMaxVersion,
		CipherSuites: c.CipherSuites}
}

// validateTLS reports mistakes in certificates, versions and cipher suites.
func (c *Config) validateTLS() error {
	return errors.Join(c.ClientTLS.Validate(certs.Clients), c.PeerTLS.Validate(certs.Peers),
		c.tlsSettings().Validate())
}

// openTLS opens the certificates of both kinds of connections.
func (m *Member) openTLS() (err error) {
	c := &m.cfg
	if m.clientTLS, err = m.openCerts(certs.Clients, c.ClientTLS,
		slices.Concat(c.ListenClientURLs, c.ListenClientHTTPURLs, c.ListenMetricsURLs,
			c.AdvertiseClientURLs)); err != nil {
		return err
	}
	m.peerTLS, err = m.openCerts(certs.Peers, c.PeerTLS,
		slices.Concat(c.ListenPeerURLs, c.InitialAdvertisePeerURLs))
	return err
}

func (m *Member) openCerts(k certs.Kind, o certs.Options, urls []string) (*certs.Store, error) {
	return certs.Open(certs.Config{
		Kind: k, Options: o, Settings: m.cfg.tlsSettings(), URLs: urls,
		DataDir: m.cfg.DataDir, SelfSignedValidity: m.cfg.SelfSignedValidity, Logger: m.log,
	})
}

// saveSelfSigned writes generated certificates to the data directory.
func (m *Member) saveSelfSigned() error {
	return errors.Join(m.clientTLS.SaveSelfSigned(), m.peerTLS.SaveSelfSigned())
}
