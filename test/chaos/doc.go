// Package chaos runs clients and watchers that record the answers of a cluster of real processes while
// its members are killed, paused, cut off, slowed down, replaced and restored by snapshots, and compares the
// records.
//
// In each round clients run, one fault occurs and is repaired, the clients stop, and then
//
//   - all members reach the same revision with the same hash;
//   - the history, which the watchers of all keys agree on, explains every answer (check.go), and porcupine
//     finds an order of the operations on each key (model.go);
//   - every watcher received the history of its keys: in order, once, without a gap, revisions whole, also
//     across resumptions at other members, and consistent with its progress notifications (watch.go);
//   - serializable reads return a state of the history, and never an older one from the same process.
//
// TestFaults is the short run, TestSoak runs for VIGIL_SOAK; VIGIL_SEED repeats the choices of a run, but not
// its timing, and VIGIL_FAULT selects faults by a word in their name. VIGIL_SUBJECT=etcd verifies the checks: a
// stock server must pass.
package chaos
