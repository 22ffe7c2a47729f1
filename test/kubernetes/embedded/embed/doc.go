// Package embed replaces go.etcd.io/etcd/server/v3/embed in the tests of Kubernetes' API server.
//
// Those tests start an etcd inside the test process and connect to it as clients. This package has
// the names of the original that they use, and runs a server process instead: Vigil, or the program
// in VIGIL_SUBJECT. A replace line in go.mod puts it in the original's place, so that Kubernetes'
// tests run unchanged with another server.
//
//  1. StartEtcd returns when the process serves clients; ReadyNotify exists because the original
//     has it.
//  2. Close returns when the process has exited; it has no effect on a process that has exited
//     already.
//  3. A process that exits unexpectedly, or whose log has a panic, is an error on Err.
package embed
