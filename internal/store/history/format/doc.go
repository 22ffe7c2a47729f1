// Package format encodes and decodes the parts of a history segment: header, batches, records,
// offset tables and footer. docs/formats/history.md has the diagrams. It does no I/O.
//
// A decoder returns a new value and keeps nothing of an earlier one. Slices in the value alias the
// decoded bytes. A decoder checks lengths and kinds, and a checksum where its comment says so; a
// caller that read the bytes from a disk checks the others with Check and CheckRecord.
package format
