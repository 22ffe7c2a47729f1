package transport

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// secured is a connection after its TLS handshake.
type secured interface{ TLSState() *tls.ConnectionState }

// handshaken are the credentials of a server whose listeners have completed the TLS handshake, if there is one. The
// AuthInfo of a peer is credentials.TLSInfo then, and plainInfo without TLS.
type handshaken struct{}

// plainInfo is the AuthInfo of a connection without TLS.
type plainInfo struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (plainInfo) AuthType() string { return "insecure" }

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(c net.Conn) (net.Conn, credentials.AuthInfo, error) {
	inner := c
	if own, ok := c.(*conn); ok {
		inner = own.Conn
	}
	if s, ok := inner.(secured); ok {
		return c, credentials.TLSInfo{State: *s.TLSState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	return c, plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
}

// ClientHandshake implements credentials.TransportCredentials.
func (handshaken) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers")
}

// Info implements credentials.TransportCredentials.
func (handshaken) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (handshaken) Clone() credentials.TransportCredentials { return handshaken{} }

// OverrideServerName implements credentials.TransportCredentials.
func (handshaken) OverrideServerName(string) error { return nil }
