// Package http2 passes h2spec's cases of HTTP/2 (RFC 7540 and 7541) against the server's own
// transport, with TLS and without. It holds only tests.
package http2
