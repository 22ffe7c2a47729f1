// Package check compares what clients and watchers of a cluster recorded with the one history that
// the watchers agree on. It does no I/O and does not know how the cluster runs: the tests with real
// processes and the simulation use it.
//
//   - the history explains every answer (check.go), and porcupine finds an order of the operations
//     on each key (model.go);
//   - every watcher received the history of its keys: in order, once, without a gap, revisions
//     whole, also across resumptions at other members, and consistent with its progress
//     notifications (watch.go);
//   - serializable reads return a state of the history, and never an older one from the same
//     process.
package check
