// Package operate runs a server as an operator does: its log, systemd, unix sockets, slow requests,
// spans.
package operate
