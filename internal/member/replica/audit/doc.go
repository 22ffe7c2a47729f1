// Package audit compares the data of members: all of them while this member leads, and this member
// with the others before it serves. It also says whether this member may serve (Trust).
//
// Members compare hashes of their stores at one revision and one compact revision. A majority of
// all voters with equal hashes decides; a member that differs from it gets the alarm CORRUPT and
// stops serving. Without a majority, the leader raises only an alarm that names no member.
//
// # Invariants
//
//  1. The alarm names a member only if its hash differed from the hash of a majority of all voters,
//     twice.
//  2. A comparison leaves out a member that lags, has compacted more, or does not answer.
//  3. Comparing reads the store of this member for at most a fiftieth of the time.
package audit
