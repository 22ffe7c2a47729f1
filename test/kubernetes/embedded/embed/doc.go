// Package embed stands in for go.etcd.io/etcd/server/v3/embed in the tests of Kubernetes' API server.
//
// Those tests start an etcd inside the test process and talk to it as clients. This package has as much of
// the original's names as they use, and runs a server process instead: Vigil, or the program that
// VIGIL_SUBJECT names. A replace line in go.mod puts it in the original's place, so that the tests of
// Kubernetes are run as they are published, with nothing but the server below them exchanged.
//
//  1. StartEtcd returns when the process serves clients; ReadyNotify is there because the original has it.
//  2. Close returns when the process is gone, and so does nothing to a process that has ended.
//  3. A process that ends by itself, or whose log has a panic, is an error on Err.
package embed
