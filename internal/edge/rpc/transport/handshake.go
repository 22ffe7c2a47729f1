package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"

	"google.golang.org/grpc/credentials"
)

// secured is a connection whose TLS handshake is over.
type secured interface{ TLSState() *tls.ConnectionState }

// handshaken are the credentials of a server whose connections come to it with their TLS handshake, if
// any, behind them. Handlers find what came of it as the AuthInfo of their peer: credentials.TLSInfo, or
// nothing for a connection without TLS.
type handshaken struct{}

// plainInfo is the AuthInfo of a connection without TLS.
type plainInfo struct{ credentials.CommonAuthInfo }

// AuthType implements credentials.AuthInfo.
func (plainInfo) AuthType() string { return "insecure" }

// ServerHandshake implements credentials.TransportCredentials.
func (handshaken) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	inner := conn
	if c, ok := conn.(*clientConn); ok {
		inner = c.Conn
	}
	if c, ok := inner.(secured); ok {
		return conn, credentials.TLSInfo{State: *c.TLSState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	return conn, plainInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.NoSecurity}}, nil
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
