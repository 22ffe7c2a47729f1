// Package compactor forgets old revisions without being asked: those that are older than a time, or
// more than a number of revisions before the newest. The rules and the cadence are those of etcd's
// automatic compaction, so that a setting means the same to both.
//
// It decides which revision to compact at and when, and has no part in how that is done. A cluster
// needs one member that does it: every member runs a compactor, and one whose Config.Leading is
// false only keeps count.
//
//  1. A revision is asked for only if it was the newest one at least a retention ago (periodic), or
//     if it is a retention of revisions before the newest (revision).
//  2. Nothing is asked for while the member does not lead. What it has kept count of meanwhile is
//     used from the first tick on at which it leads.
//  3. A compaction that failed is tried again, with what is old enough by then, at the next tick.
//     One that was overtaken by another counts as done.
package compactor
