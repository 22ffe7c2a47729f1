// Package node drives the server with the etcd client of Node, which shares no code with the
// clients in Go.
//
// It needs Node, and that client in node_modules: make node-client installs it. Without them the
// test is skipped.
package node
