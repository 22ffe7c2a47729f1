// Package lease is which leases there are, which keys are attached to them, and when their time is over.
//
// State is replicated: it follows from the log alone and is the same on every member. Timers count the
// time of leases, which only the leader does. Neither has a clock, a goroutine or a file: times come in
// as arguments, records go out as bytes.
//
// # What a caller must do
//
//   - One goroutine, the one that applies, changes the State. Every change comes with the record that
//     Record returns for it, which the caller stores in the same batch. Other goroutines may read.
//   - Attachments follow the key space: Attach is told every change, and a lease that ends is taken out
//     with Remove after its keys, which Keys names in order, were deleted.
//   - Timers belong to whoever holds the caller's lock. They are filled when a member has become leader
//     and has applied everything that was committed before, and are thrown away when it leads no more.
//
// # Invariants
//
//  1. A key is attached to the lease that its newest version names, if that lease exists, and to no other,
//     whether the lease was granted before the version was written or after it.
//  2. A record holds all of a lease but its keys, which the key space knows.
//  3. What is said about one life of a lease (LeaseRef) has no effect on another life of the same id.
//  4. Timers never name a lease as due before its TTL is over, counted from the last Add or Renew.
//  5. A lease that is named as due is not renewed until Retry or Remove says what became of it.
package lease
