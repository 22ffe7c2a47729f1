// Package tls tests connections with TLS between stock clients and the real server process: who is let in
// and who is not, beside a stock server, and what happens when certificates are replaced.
package tls
