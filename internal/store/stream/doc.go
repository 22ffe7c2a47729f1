// Package stream encodes records and meta records of a store as one stream of bytes with counts and
// a checksum at its end: the content of a snapshot between members, and of a part of an archive.
// docs/formats/snapshot.md describes the bytes.
//
// # Invariants
//
//  1. A stream that was changed, cut off or extended is never complete: Decoder.Next returns an
//     error other than io.EOF.
//  2. A Decoder takes memory only for bytes that have arrived.
package stream
