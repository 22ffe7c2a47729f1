// Package segfile reads the file of a sealed segment of the history: a record by number or
// revision, all records in order, the meta records, and everything to check it. It never writes.
//
// A file is mapped where that is possible and read otherwise. All methods of a mapped File that
// read its bytes are called between Begin and End of an Access, which turn a page that the disk
// does not deliver into an error. Check, EachMeta and Open do so themselves. A reference must be
// held during the read: by Access.To, or by the caller with Acquire or Hold.
//
// # Invariants
//
//  1. Bytes that fail their checksum are never returned. The error wraps kv.ErrCorrupt and names
//     the file and the offset.
//  2. Bytes of a mapping never leave the package: they are copied, and the copy is checked.
//  3. No byte of a file is read after its last reference was released.
package segfile
