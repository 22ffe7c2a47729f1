// Package tls tests connections with TLS between stock clients and the real server process: which
// clients are accepted and rejected, compared with a stock server, and the effect of replaced
// certificates.
package tls
