// Package archived reads the archive of a cluster in a bucket: its objects, whether they are sound,
// and the states that they give. It restores a state into the store of package restore, opens one
// to read its keys (Past), and removes objects that the rules of retention do not keep.
//
// # Invariants
//
//  1. Nothing is written to the bucket. Only PrunePlan.Run deletes: only objects that the plan
//     names, never one that a remaining manifest lists, and never one that the newest restorable
//     state needs.
//  2. Content counts only after the checksum of its object was compared. A damaged object is named
//     and not used again.
//  3. A state is restored completely or not at all: a target that cannot be reached is an error
//     that says which states can be restored. If the target is the newest state, the newest one
//     that can be restored is, and the missing part is reported.
//  4. Ages of objects are by the clock of the bucket, so a wrong clock of a member or of the caller
//     removes nothing.
package archived
