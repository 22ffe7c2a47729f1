package cluster

import (
	"crypto/sha1"
	"encoding/binary"
	"slices"
	"strconv"
)

// MemberID derives the id of a member from its peer URLs and the token of its cluster: the first
// eight bytes of a SHA-1. For members of the initial cluster added is 0; for a later member it is
// the time of its addition in seconds since 1970, so that the same URLs can be added again with a
// new id.
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
	return digest(b)
}

// ID derives the id of a cluster from the ids of its initial members.
func ID(members []uint64) uint64 { return digest(appendIDs(nil, members)) }

// RestoredID derives the id of a cluster that is restored from a backup, from the ids of its
// initial members and from numbers that identify the content of the backup. It differs from the id
// of a new cluster with the same members, and of a cluster from another backup: members with
// different initial data reject each other.
func RestoredID(members []uint64, content ...uint64) uint64 {
	b := appendIDs([]byte("restored"), members)
	for _, n := range content {
		b = binary.BigEndian.AppendUint64(b, n)
	}
	return digest(b)
}

func appendIDs(b []byte, members []uint64) []byte {
	for _, id := range slices.Sorted(slices.Values(members)) {
		b = binary.BigEndian.AppendUint64(b, id)
	}
	return b
}

// digest returns the first eight bytes of a SHA-1.
func digest(b []byte) uint64 {
	sum := sha1.Sum(b)
	return binary.BigEndian.Uint64(sum[:8])
}
