// Package archive encodes and decodes the objects of an archive: the identity, the manifests of
// base states, the parts that they list, and the log objects with the committed entries between
// them. docs/formats/archive.md has names and bytes. It does no I/O: objects are bytes.
//
// A Sealer makes the objects of one archive and a Reader reads them; both begin with the Identity,
// which is the first object of a bucket.
//
// # Invariants
//
//  1. A reader finds a flipped bit anywhere in an object, even without the key of an encrypted one.
//  2. A reader does not accept an object of another archive, another cluster or another name:
//     header and name agree.
//  3. A reader returns nothing of an object before it has compared the checksum, and nothing of its
//     content counts before the content is complete.
//  4. A reader takes memory in proportion to the bytes that it was given, and to MaxContent at
//     most.
//  5. Objects that two senders make for the same index do not contradict each other: they are made
//     of committed entries.
package archive
