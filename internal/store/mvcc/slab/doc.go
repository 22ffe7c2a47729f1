// Package slab keeps many small things in few large pieces of memory that hold no pointers, so that the garbage collector
// has little to visit however many things there are.
//
// A Pool belongs to one writer. It allocates words (of 64 bits) in slabs and returns a Ref, a number, for each allocation.
// A Table resolves a Ref to memory. Readers hold the Table that belongs to the state they read, and take no lock.
//
// Memory is never used twice: an allocation goes to the end of a slab, and a slab whose allocations are all released is
// removed from the Table and left to the garbage collector. What a reader holds (a Table, the words of a Ref, a key) keeps
// the slab alive, so there is nothing that a reader must close. Slabs that are partly released are emptied by their user:
// see BeginClean.
//
// # Invariants
//
//  1. A Ref is unique for the life of a Pool: it is never given to a second allocation. When a slot of the table is used again
//     its generation is the next one, and a slot with the last generation is not used again.
//  2. A Table never loses a slab: one that is removed is missing in the next Table, which the older one points to.
//  3. A Ref that was valid when a Table was the newest one, or later, is found from that Table on. So a reader
//     may resolve what it finds in memory that the writer changes, if it holds a Table from before.
//  4. The size of a Pool is at most 3/2 of what is in use and a constant, if its user cleans when Wanted reports it.
package slab
