// Package chaos runs clients and watchers that record the answers of a cluster of real processes while
// its members are killed, paused, cut off, slowed down, replaced and brought up by snapshots, and checks the
// records against one another.
//
// In each round clients run, one thing goes wrong and is put right, the clients end, and then
//
//   - all members reach the same revision with the same hash;
//   - the history, which the watchers of all keys agree on, explains every answer (check.go), and porcupine
//     finds an order of the operations on each key (model.go);
//   - every watcher received the history of its keys: in order, once, without a gap, revisions whole, also
//     across resumptions at other members, and as its notifications of progress promised (watch.go);
//   - serializable reads show a state that there was, and never an older one from the same process.
//
// TestFaults is the short run, TestSoak takes as long as VIGIL_SOAK says; VIGIL_SEED repeats the choices of a
// run, though not its timing, and VIGIL_FAULT takes only faults with a word in their name. VIGIL_SUBJECT=etcd
// checks the checks: a stock server must pass.
package chaos
