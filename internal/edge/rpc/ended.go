package rpc

import (
	"net"
	"time"
)

// logEnded logs why a client's connection was ended by the transport, at most once a second.
func (s *service) logEnded(client net.Addr, reason error) {
	ok, dropped := s.ended.Allow(time.Now())
	if !ok {
		return
	}
	attrs := []any{"remote", client.String(), "error", reason}
	if dropped > 0 {
		attrs = append(attrs, "lines left out", dropped)
	}
	s.log.Warn("ended the connection of a client that violates the protocol or its limits", attrs...)
}
