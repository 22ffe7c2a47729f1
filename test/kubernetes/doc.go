// Package kubernetes runs Kubernetes on Vigil: the published tests of its storage, and a real API
// server that clients use while its store is killed and restarted.
//
// It is a separate module, so that no other module has Kubernetes' requirements.
package kubernetes
