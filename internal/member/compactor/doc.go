// Package compactor compacts automatically. It removes revisions that are older than a period, or
// that are more than a number of revisions behind the newest. It follows the rules and the cadence
// of etcd's automatic compaction, so that a setting means the same in both.
//
// It decides when to compact and at which revision; the store does the rest. One member of a
// cluster compacts: every member runs a compactor, and one whose Config.Leading is false only
// records revisions.
//
//  1. The compactor asks for a revision only if it was the newest one at least a retention ago
//     (periodic), or if it is a retention of revisions before the newest (revision).
//  2. A member that does not lead asks for nothing. It still records revisions, and uses them from
//     the first tick at which it leads.
//  3. After a failed compaction the compactor tries again at the next tick, with the revision that
//     is old enough by then. If somebody else has already compacted further, that counts as
//     success.
package compactor
