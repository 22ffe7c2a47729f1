// Package backup takes state from a stock etcd to Vigil and back, by the files that etcd's tools and
// vigilctl write, and compares everything that a client can see on both sides: every key at every revision,
// leases, users, roles, and the hash over the history.
package backup
