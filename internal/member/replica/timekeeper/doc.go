// Package timekeeper knows when revisions were made: it proposes that while its member leads, and answers about it.
//
// About once a second the leader looks at the newest revision that it has applied, and at its clock. If there are revisions
// without a time, it proposes a mark with both. If the revision of the last mark was still the newest at the look before,
// the request has that as a mark too: a write after an idle hour was made in this second, not in the hour. While nothing is
// written it proposes nothing.
//
// # Invariants
//
//  1. A mark is proposed only by the leader, and has no effect in another term.
//  2. Revisions up to that of a mark were applied by the leader before it read the time of the mark; others were not yet,
//     and all that earlier leaders have acknowledged were.
//  3. Nothing is proposed before all members know the request, see fsm.LevelTimes.
//  4. A mark at or before the newest one is proposed only after the clock was behind it by more than Tolerance for
//     Patience. It replaces the later marks.
package timekeeper
