package pool

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc/connectivity"
)

// Reasons that inspect finds. They stay, like those in lasting.
const (
	speaksTLS   = "the port speaks TLS: write https://"
	speaksPlain = "the port speaks no TLS: write http://, without certificates"
)

const (
	// inspectTimeout limits how long inspect waits for an answer of the member.
	inspectTimeout = 5 * time.Second
	// alert begins the reason of the other side in an error of crypto/tls.
	alert = "remote error: tls: "
)

// clientPreface is what a client of HTTP/2 sends first: the preface, and a frame SETTINGS that is
// empty.
const clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// inspect looks for a reason that stays why the member ends connections or answers something else.
// It connects once more, because the end of a connection does not say why, and can overtake the
// member's reason; only an answer of the member is a proof. It ends when gRPC has connected. It
// does not inspect a member that has been connected before, and none at all if options of the
// caller may make the connections.
func (m *Member) inspect(ctx context.Context) {
	if m.met.Load() || len(m.pool.cfg.DialOptions) > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, inspectTimeout)
	defer cancel()
	m.pool.tasks.Go(func() {
		if m.conn.WaitForStateChange(ctx, connectivity.TransientFailure) {
			cancel()
		}
	})
	var why *refused
	if m.pool.cfg.Secure {
		why = m.inspectSecure(ctx)
	} else if m.answersTLS(ctx) {
		why = &refused{speaksTLS}
	}
	if why != nil {
		m.setRefused(why)
	}
}

// inspectSecure connects with TLS.
func (m *Member) inspectSecure(ctx context.Context) *refused {
	conn, err := m.dial(ctx)
	if err != nil {
		return nil
	}
	defer conn.Close()
	secure, _, err := m.pool.cfg.Credentials.ClientHandshake(ctx,
		m.endpoint.authority(m.pool.cfg.ServerName), conn)
	if err == nil {
		// A member rejects the certificate of a client after the handshake, and says so to a client
		// that only reads.
		_, err = secure.Read(make([]byte, 1))
	}
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), alert):
		why, _ := reasonOf(err.Error(), true, false)
		r, _ := why.(*refused)
		return r
	case m.answersPlain(ctx):
		return &refused{speaksPlain}
	}
	return nil
}

// dial connects without TLS. The connection ends with ctx.
func (m *Member) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, m.endpoint.network, m.endpoint.address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return conn, nil
}

// answersTLS reports whether the member answers a TLS handshake, also by rejecting it.
func (m *Member) answersTLS(ctx context.Context) bool {
	conn, err := m.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	// Nothing is sent on the connection, so the certificate does not matter.
	err = tls.Client(conn,
		&tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).HandshakeContext(ctx)
	return err == nil || strings.Contains(err.Error(), alert)
}

// answersPlain reports whether the member answers HTTP/2 without TLS.
func (m *Member) answersPlain(ctx context.Context) bool {
	conn, err := m.dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, clientPreface); err != nil {
		return false
	}
	header := make([]byte, 9) // length, type SETTINGS, flags, stream 0
	_, err = io.ReadFull(conn, header)
	return err == nil && header[3] == 4 && bytes.Equal(header[5:], make([]byte, 4))
}
