// Package bucket stores objects under keys, each written once and never changed: in a directory, or
// in the object storage of a cloud by a program of its own, vigil-bucket, so that the libraries of
// the clouds are in neither vigil nor vigilctl.
//
// # What a caller must do
//
// A Put without a definite answer (any error but ErrExists, ErrDenied and ErrKey) may have taken
// effect, also later. It is repeated with the same key and the same bytes; ErrExists then means
// that an object with this key is there, which Get shows.
//
// # Invariants
//
//  1. Put never replaces an object: of two callers with one key, one receives ErrExists. Nothing
//     counts as there but what was confirmed: an answer of a storage that may mean so is looked up.
//     ErrNotFound is a storage's answer, too, and never the lack of one. What an answer means
//     follows from its codes and never from its text, which has names that users have chosen.
//  2. An object has all of its bytes or does not exist.
//  3. When Put returns nil, the object survives a crash. So does one that Get or List returned, or
//     for which Put returned ErrExists, of any process; a directory that cannot be written to is
//     read as it is.
//  4. An answer takes memory for what the caller asked for: Get is a stream, List has a limit.
//  5. No error and no log line holds a credential: texts of the program are cut to one line of
//     limited length, and a URL is shown without its user and its parameters.
package bucket
