// Package lease tracks granted leases, the keys attached to each, and their expiry.
//
// State is replicated: it depends on the log only and is the same on every member. Timers measure
// the time of leases on the leader. Neither has a clock, a goroutine or a file: times are
// arguments, records are returned as bytes.
//
// # What a caller must do
//
//   - The apply goroutine alone changes the State. For every change it stores the record that
//     Record returns, in the same batch. Other goroutines may read.
//   - Attachments follow the key space: the caller calls Attach for every change. When a lease
//     ends, the caller deletes its keys in the order of Keys and then calls Remove.
//   - The caller guards Timers with a lock. It fills them when the member has become leader and has
//     applied all entries that were committed before, and discards them when the member no longer
//     leads.
//
// # Invariants
//
//  1. A key is attached to the lease that its newest version names, if that lease exists, and to no
//     other, whether the lease was granted before the version was written or after it.
//  2. A record holds everything of a lease but its keys, which the key space holds.
//  3. A request for one life of a lease (LeaseRef) has no effect on another life of the same id.
//  4. Timers never report a lease as due before its TTL has passed since the last Add or Renew.
//  5. Renew does not renew a lease that was reported as due until Retry or Remove.
package lease
