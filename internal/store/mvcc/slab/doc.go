// Package slab keeps many small objects in few large pieces of memory without pointers, so that the
// garbage collector has little to visit however many objects there are.
//
// A Pool belongs to one writer. It allocates words (of 64 bits) in slabs and returns a Ref, a
// number, for each allocation. A Table resolves a Ref to memory. Readers hold the Table that
// belongs to the state they read, and take no lock.
//
// A Pool never uses memory twice: it allocates at the end of a slab, and when all allocations of a
// slab are released it removes the slab from the Table and leaves it to the garbage collector. What
// a reader holds (a Table, the words of a Ref, a key) keeps the slab alive, so there is nothing
// that a reader must close. Slabs that are partly released are emptied by their user: see
// BeginClean.
//
// # Invariants
//
//  1. A Ref is unique for the life of a Pool: no second allocation gets it. When a slot of the
//     table is used again its generation is the next one, and a slot with the last generation is
//     not used again.
//  2. A Table never loses a slab: a removed slab is missing in the next Table, to which the older
//     one points.
//  3. A Table resolves every Ref that is valid while it is the newest one, or later. So a reader
//     that holds an older Table may resolve the Refs that it finds in memory that the writer
//     changes.
//  4. The size of a Pool is at most 3/2 of the words in use plus a constant, if its user cleans
//     when Wanted reports true.
package slab
