// Package ration lends memory to answers that may be large, under one limit in bytes for the
// member.
//
// A Budget lends the memory in pieces of PieceSize from a pool. Each piece returns to the pool when
// the transport has sent it. A Budget does not count an answer of up to FreeSize, which never
// waits. A larger one gets ErrFull when there is no room for its expected size; it then discards
// what it has built, waits in the queue without holding memory, and starts again.
//
// # What a user must do
//
//   - The builder of an answer: Borrow; Piece and Charge while building, from one goroutine; Finish
//     at the end. After ErrFull: Wait, which takes back all pieces, and start again. Instead of
//     Finish: Abandon. For an answer of known size: Take.
//   - The sender: Return for each piece, in any order and from any goroutine. If pieces were lost,
//     Abandon; a later Return then only puts the piece into the pool.
//
// # Invariants
//
//  1. A waiting loan holds nothing, so no two loans can wait for each other.
//  2. The held memory is at most the limit, with two exceptions: if a single large loan holds all
//     of it, an eighth of the limit more; if Force was used, at most twice the limit.
//  3. Every waiting loan is admitted, whatever comes later. A Budget admits waiting loans in the
//     order in which they first waited, and no new loan overtakes them, with two exceptions. A
//     Budget keeps an eighth of the limit for small answers, of up to a 64th of the limit, which do
//     not wait for larger ones: small answers take room from larger ones only beyond the eighth.
//     And a loan that waits because its own holders have used up their share does not delay loans
//     of other holders; later loans of the same holder overtake it until their sum reaches the
//     share, and then wait.
//  4. A holder has at most its part of the limit, unless it holds a single loan or Force was used.
//  5. A Budget counts nothing for a loan that was finished and returned, or abandoned.
package ration
