// Package metrics compares /metrics with that of a stock etcd, and checks that a running server
// exports every metric of the alert rules, the dashboard and the pages for operators.
package metrics
