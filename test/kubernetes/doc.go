// Package kubernetes puts Kubernetes on top of Vigil: the tests of its storage as they are published, and a
// real API server that is used by clients while its store is killed and restarted.
//
// It is a module of its own, so that what Kubernetes needs is asked of nothing else.
package kubernetes
