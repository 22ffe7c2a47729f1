// Package alerts tests the files in packaging/monitoring with Prometheus' own parsers and its query
// engine: each alert fires for series that need it and is silent for others, panels and rules name
// series that a member exports, and real members that die or have certificates that expire raise
// their alerts.
package alerts
