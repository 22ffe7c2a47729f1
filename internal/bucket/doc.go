// Package bucket stores objects under keys, each written once and never changed. The objects are in
// a directory, or in the object storage of a cloud. A separate program, vigil-bucket, accesses
// clouds, so that vigil and vigilctl do not contain their libraries.
//
// # What a caller must do
//
// A Put without a definite answer (any error but ErrExists, ErrDenied and ErrKey) may take effect,
// even later. Repeat it with the same key and the same bytes. ErrExists then means that an object
// with this key exists; Get returns it.
//
// # Invariants
//
//  1. Put never replaces an object: of two callers with one key, one receives ErrExists. An object
//     counts as present only if the storage confirms it; after an ambiguous answer the bucket
//     looks. ErrNotFound too is an answer of the storage, never the lack of one. The meaning of an
//     answer follows from its codes, never from its text, which contains names that users chose.
//  2. An object has all of its bytes or does not exist.
//  3. When Put returns nil, the object survives a crash. So does one that Get or List returned, or
//     for which Put returned ErrExists, of any process; a read-only directory is read as it is.
//  4. An answer takes memory only for the requested part: Get is a stream, List has a limit.
//  5. No error and no log line holds a credential: texts of the program are cut to one line of
//     limited length, and a URL is shown without its user and its parameters.
package bucket
