package keytree

// headOf reads the first eight bytes of s as a number. The numbers have the order of the bytes.
func headOf(s string) uint64 {
	if len(s) >= 8 {
		return uint64(s[0])<<56 | uint64(s[1])<<48 | uint64(s[2])<<40 | uint64(s[3])<<32 |
			uint64(s[4])<<24 | uint64(s[5])<<16 | uint64(s[6])<<8 | uint64(s[7])
	}
	var h uint64
	for i := 0; i < len(s); i++ {
		h |= uint64(s[i]) << (56 - 8*i)
	}
	return h
}

// firstHead returns the position of the first of the ascending heads that is at least h.
func firstHead(heads []uint64, h uint64) int {
	lo, hi := 0, len(heads)
	for lo < hi {
		m := int(uint(lo+hi) / 2)
		if heads[m] < h {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// hasPrefix reports whether key begins with the first n bytes of peer, which has at least n bytes.
func hasPrefix(key, peer string, n int) bool { return len(key) >= n && key[:n] == peer[:n] }

func commonPrefix(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// insertAt inserts v at position i of the first n elements of s, which has room for one more.
func insertAt[T any](s []T, n, i int, v T) {
	copy(s[i+1:n+1], s[i:n])
	s[i] = v
}

// deleteAt deletes position i of the first n elements of s.
func deleteAt[T any](s []T, n, i int) {
	copy(s[i:n-1], s[i+1:n])
	clear(s[n-1 : n])
}
