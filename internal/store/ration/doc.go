// Package ration lends memory to answers that may be large, under one limit in bytes for the member.
//
// The memory comes in pieces of PieceSize from a pool and goes back to it piece by piece, when the
// transport has sent it. An answer of up to FreeSize takes no part in the limit and never waits. A
// larger one is told when there is no room for what it expects to need; it then gives up what it
// has built, waits in line with nothing in its hands, and begins again.
//
// # What a user must do
//
//   - The one who builds: Lease; Piece and Charge while building, from one goroutine; Settle at the
//     end. After ErrFull: Wait, which takes all pieces back, and begin again. Instead of Settle: Abandon.
//     Or Take, for an answer whose size is known.
//   - The one who sends: Return for each piece, in any order and from any goroutine. If pieces were
//     lost on the way, Abandon, after which Return does no more than to pool the piece.
//
// # Invariants
//
//  1. Leases that wait hold nothing, so no two can wait for each other.
//  2. What is held is at most the limit, unless a single lease holds all of it or Force was used, and then at most
//     twice that.
//  3. Those who wait are served in the order in which they first had to, and nobody who has not been admitted
//     overtakes them, but for this: an eighth of the limit is kept for answers of up to a 64th of it, which
//     do not wait for larger ones; and who waits because its own holders have their share holds up nobody else.
//  4. A holder has its part of the limit at most, unless it holds a single lease or Force was used.
//  5. Every lease that was settled and returned, or abandoned, leaves nothing behind.
package ration
