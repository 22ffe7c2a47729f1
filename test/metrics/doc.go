// Package metrics compares what /metrics shows with what a stock etcd shows, and holds what the alert
// rules, the dashboard and the pages for operators name against what a running server exports.
package metrics
