// Package discovery runs members that find each other: by a registry in a stock etcd or in another
// Vigil, also next to stock members that use the same one, and by SRV records of a name server on
// loopback. It holds only tests.
package discovery
