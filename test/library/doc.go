// Package library runs the Go client library, vigil/client, against Vigil and a stock etcd as
// processes, with members that are killed and stopped, and a network that cuts, stalls and
// half-closes connections.
package library
