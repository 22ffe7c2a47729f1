package keytree

// innerWidth is the largest number of children of an inner node. With 36 an inner node fills an
// allocation of 1792 bytes.
const innerWidth = 36

// inner is a node above the leaves.
type inner struct {
	// gen is the generation of the tree that made the node and may still write it.
	gen uint64
	// n is the number of children.
	n int32
	// skip and heads let find decide most comparisons without reading the bounds.
	skip  int32
	heads [innerWidth]uint64
	// seps holds the lower bounds of the children, kids the children, lives the numbers of live
	// keys below them.
	seps  [innerWidth]string
	kids  [innerWidth]node
	lives [innerWidth]int
}

// node is a leaf, or an inner node if leaf is nil.
type node struct {
	leaf  *leaf
	inner *inner
}

// sparse reports whether the tree should join n with a neighbor.
func (n node) sparse() bool {
	if n.leaf != nil {
		return n.leaf.n < leafWidth/3
	}
	return n.inner.n < innerWidth/3
}

// liveKeys returns the number of live keys at and below n.
func (n node) liveKeys() int {
	if n.leaf != nil {
		return n.leaf.liveKeys()
	}
	sum := 0
	for _, l := range n.inner.lives[:n.inner.n] {
		sum += l
	}
	return sum
}

// find returns the position of the first bound at or above key, and whether it is key. It does not
// read the lowest bound.
func (n *inner) find(key string) (int, bool) {
	end := int(n.n)
	if end < 2 {
		return end, false
	}
	if n.skip > 0 && !hasPrefix(key, n.seps[1], int(n.skip)) {
		if key < n.seps[1] {
			return 1, false
		}
		return end, false
	}
	h := headOf(key[n.skip:])
	i := 1 + firstHead(n.heads[1:end], h)
	// Bounds with the same head follow each other; the rest of the bounds decides. Few nodes have
	// more than one such bound, so a walk is as good as a search.
	for ; i < end && n.heads[i] == h; i++ {
		if n.seps[i] >= key {
			return i, n.seps[i] == key
		}
	}
	return i, false
}

// child returns the position of the child whose keys enclose key.
func (n *inner) child(key string) int {
	i, found := n.find(key)
	if !found {
		i--
	}
	return i
}

// reindex recomputes skip and heads after the node got bounds of another node, or a bound without
// the prefix. It leaves out the lowest bound, which is never compared and need not resemble the
// others.
func (n *inner) reindex() {
	n.skip = 0
	if n.n > 1 {
		n.skip = int32(commonPrefix(n.seps[1], n.seps[n.n-1]))
	}
	for i := 1; i < int(n.n); i++ {
		n.heads[i] = headOf(n.seps[i][n.skip:])
	}
}

func (n *inner) insert(i int, sep string, kid node) {
	insertAt(n.seps[:], int(n.n), i, sep)
	insertAt(n.heads[:], int(n.n), i, 0)
	insertAt(n.kids[:], int(n.n), i, kid)
	insertAt(n.lives[:], int(n.n), i, kid.liveKeys())
	n.n++
	peer := 1
	if i <= 1 {
		peer = 2
	}
	if i == 0 || peer >= int(n.n) || !hasPrefix(sep, n.seps[peer], int(n.skip)) {
		n.reindex()
		return
	}
	n.heads[i] = headOf(sep[n.skip:])
}

func (n *inner) removeAt(i int) {
	deleteAt(n.seps[:], int(n.n), i)
	deleteAt(n.heads[:], int(n.n), i)
	deleteAt(n.kids[:], int(n.n), i)
	deleteAt(n.lives[:], int(n.n), i)
	n.n--
	if i == 0 {
		// Nothing reads the former second bound any more.
		n.reindex()
	}
}

// moveTail moves the children from position i on to the end of dst. Both must be writable.
func (n *inner) moveTail(i int, dst *inner) {
	end := int(n.n)
	copy(dst.seps[dst.n:], n.seps[i:end])
	copy(dst.kids[dst.n:], n.kids[i:end])
	copy(dst.lives[dst.n:], n.lives[i:end])
	dst.n += n.n - int32(i)
	clear(n.seps[i:end])
	clear(n.kids[i:end])
	clear(n.heads[i:end])
	n.n = int32(i)
	n.reindex()
	dst.reindex()
}
