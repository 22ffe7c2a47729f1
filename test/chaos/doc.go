// Package chaos runs clients and watchers that record the answers of a cluster of real processes while
// its members are killed, paused, cut off, slowed down, replaced and restored by snapshots, and compares the
// records.
//
// In each round clients run, one fault occurs and is repaired, the clients stop, and then
//
//   - all members reach the same revision with the same hash;
//   - the records pass the checks of vigil/sim/check.
//
// TestFaults is the short run, TestSoak runs for VIGIL_SOAK; VIGIL_SEED repeats the choices of a run, but not
// its timing, and VIGIL_FAULT selects faults by a word in their name. VIGIL_SUBJECT=etcd verifies the checks: a
// stock server must pass.
package chaos
