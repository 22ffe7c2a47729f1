// Package delivery tracks large answers until their memory is free.
//
// The memory of a large answer comes from a budget and is in use until the client has read it. A
// client that does not read keeps that memory only while no one waits for it: then its connection
// is closed.
//
//  1. An answer of at most ration.FreeSize bytes is not counted.
//  2. A delivery ends when the transport has returned the memory, when the connection ends, or when
//     the garbage collector finds that the answer is no longer referenced, whichever is first.
//  3. Of the budget a connection may use a quarter, and a user half.
package delivery
