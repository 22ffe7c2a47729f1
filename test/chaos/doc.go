// Package chaos runs clients and watchers that record the answers of a cluster of real processes
// while its members are killed, paused, cut off, slowed down, replaced and restored by snapshots,
// and compares the records.
//
// In each round clients run, one fault occurs and is repaired, the clients stop, and then
//
//   - all members reach the same revision with the same hash;
//   - the records pass the checks of vigil/sim/check.
//
// The network between members is one of package link. With root rights each member and the clients
// have a network namespace of their own, and a switch loses, delays, doubles and reorders packets,
// pulls cables, disables interfaces and returns errors. Otherwise the members are connected through
// proxies on loopback, which cut, delay and reset connections.
//
// TestFaults is the short run with proxies, and TestPackets the one with namespaces: it is skipped
// where they cannot be created. TestSoak runs for VIGIL_SOAK, with namespaces if possible.
// VIGIL_NETNS=1 demands them, VIGIL_NETNS=0 disables them. VIGIL_SEED repeats the choices of a run,
// but not its timing, and VIGIL_FAULT selects faults by a word in their name. VIGIL_SUBJECT=etcd
// verifies the checks: a stock server must pass.
package chaos
