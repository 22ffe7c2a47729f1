package cluster

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"strconv"
)

// MemberID derives the id of a member from its peer URLs and the token of its cluster: the first
// eight bytes of a SHA-1. Members of the initial cluster have added 0; one that joins later adds
// the time of its addition in seconds since 1970, so that the same URLs can come back under a new
// id.
func MemberID(peerURLs []string, token string, added int64) uint64 {
	urls := slices.Clone(peerURLs)
	slices.Sort(urls)
	var b []byte
	for _, u := range urls {
		b = append(b, u...)
	}
	b = append(b, token...)
	if added != 0 {
		b = strconv.AppendInt(b, added, 10)
	}
	sum := sha1.Sum(b)
	return binary.BigEndian.Uint64(sum[:8])
}

// ID derives the id of a cluster from the ids of its initial members.
func ID(members []uint64) uint64 {
	ids := slices.Clone(members)
	slices.Sort(ids)
	b := make([]byte, 0, 8*len(ids))
	for _, id := range ids {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	sum := sha1.Sum(b)
	return binary.BigEndian.Uint64(sum[:8])
}
