package kv

// HashResult is a checksum over the history of the key space. Two members with the same data have
// the same Hash for the same pair of CompactRevision and HashRevision.
type HashResult struct {
	// Hash is a CRC-32 with Castagnoli's polynomial.
	Hash uint32
	// HashRevision is the newest revision in the hash. At or below CompactRevision the hash
	// includes only the state of the keys; -1 means none.
	HashRevision, CompactRevision int64
	// Revision is the newest revision of the member that answers.
	Revision int64
}
