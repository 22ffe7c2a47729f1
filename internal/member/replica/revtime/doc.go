// Package revtime gives revisions their times: while this member leads, the clock of this member.
// Every member answers when revisions were made.
//
// A revision is made when the leader adds its entry to the log. The time is a field of the entry,
// so applying it needs no clock, and package mvcc stores it with each record.
//
// Invariants:
//
//  1. A time is rounded up to milliseconds: at any time that is read from a clock later, the
//     revision had been made.
//  2. Clocks of members may differ. One that is up to mvcc.MaxClockLag behind the newest revision
//     has no effect until it has passed it: times do not descend.
//  3. A clock that is further behind may be corrected for Patience. Until then new revisions have
//     the time of the newest one. After that it is believed, and what was made later by an earlier
//     clock counts as made before (mvcc.Writer.SetTime).
//  4. A Stamper has one owner, the turn of raft. Everything else is for any goroutine.
package revtime
