// Package ration lends memory to answers that may be large, under one limit in bytes for the member.
//
// The memory is lent in pieces of PieceSize from a pool. Each piece returns to the pool when the transport has
// sent it. An answer of up to FreeSize is not counted and never waits. A larger one gets ErrFull when there is
// no room for its expected size; it then discards what it has built, waits in the queue without holding
// memory, and starts again.
//
// # What a user must do
//
//   - The builder of an answer: Borrow; Piece and Charge while building, from one goroutine; Finish at the
//     end. After ErrFull: Wait, which takes all pieces back, and start again. Instead of Finish: Abandon.
//     For an answer of known size: Take.
//   - The sender: Return for each piece, in any order and from any goroutine. If pieces were lost,
//     Abandon; a later Return then only puts the piece into the pool.
//
// # Invariants
//
//  1. A waiting loan holds nothing, so no two loans can wait for each other.
//  2. The held memory is at most the limit, unless a single large loan holds all of it, and then an eighth of the limit more, or
//     Force was used, and then at most twice the limit.
//  3. Every waiting loan is served, whatever comes later. Waiting loans are served in the order in which they first waited, and no new
//     loan overtakes them, with two exceptions. An eighth of the limit is kept for small answers, of up to a 64th of it, which do
//     not wait for larger ones: of these only what is above the eighth is in the way. And a loan that waits because its own
//     holders have their share delays no other holder's loan; later loans of the same holder overtake it until they sum up to
//     the share, and then wait.
//  4. A holder has at most its part of the limit, unless it holds a single loan or Force was used.
//  5. A loan that was finished and returned, or abandoned, leaves nothing counted.
package ration
