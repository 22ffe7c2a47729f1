// Package backup migrates state from a stock etcd to Vigil and back, with the files of etcd's tools
// and vigilctl, and compares everything that a client can see on both sides: every key at every
// revision, leases, users, roles, and the hash over the history.
package backup
