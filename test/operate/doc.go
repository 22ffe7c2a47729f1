// Package operate runs a server as an operator does: its log, systemd around it, sockets in the file
// system, requests that take long, spans.
package operate
