package rpc

import (
	"errors"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
)

// TestEndedConnections: when the transport ends a connection, the log names the client and the
// reason, at most once a second.
func TestEndedConnections(t *testing.T) {
	f := start(t, nil)
	nc, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	fr := http2.NewFramer(nc, nc)
	fr.AllowIllegalWrites = true
	_, err = nc.Write([]byte(http2.ClientPreface))
	if err := errors.Join(err, fr.WriteSettings(),
		fr.WriteData(0, false, []byte("x"))); err != nil {
		t.Fatal(err)
	}
	const line = "ended the connection of a client that violates the protocol or its limits"
	eventually(t, "a line in the log",
		func() bool { return strings.Contains(f.log.String(), line) })
	if log := f.log.String(); !strings.Contains(log, nc.LocalAddr().String()) ||
		!strings.Contains(log, "ended with PROTOCOL_ERROR: data on stream 0") {
		t.Error(log)
	}
}
