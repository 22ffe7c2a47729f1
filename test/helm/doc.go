// Package helm tests the chart in packaging/helm with Helm's own linter and engine, and with the
// types of the Kubernetes API and of the custom resources that the chart makes.
package helm
