// Package helm tests the chart in packaging/helm with Helm's own linter and engine, and with the
// types of the Kubernetes API and of the custom resources that it makes. It is a module of its own
// because of their many dependencies.
package helm
