// Package folders lists one level of keys like a directory. Among the keys with a prefix, all keys
// with the same part up to the next separator form one line, a folder. It does no I/O: the caller
// reads the pages of keys, all at one revision.
//
//  1. A listing reads only the first keys of a folder and continues at the first key after it. The
//     work is proportional to the lines, not to the keys.
//  2. Entries come in the order of the keys, each once.
package folders

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"slices"
)

// Bounds of a page. Further keys of a folder in a page are wasted reads; without folders, larger
// pages need fewer calls.
const (
	firstPage   = 100
	largestPage = 1000
	pageBytes   = 64 << 10 // of keys in a page: the next one after more of them is small
)

// ErrPage reports a page with keys outside the requested range.
var ErrPage = errors.New("not the keys that were asked for")

// Entry is a line: a key, or a folder.
type Entry[K any] struct {
	// Key is the key, or the first one of the folder.
	Key []byte
	// Item is the item of the page for Key.
	Item K
	// Folder is the prefix of all keys of the folder, nil if the entry is a key.
	Folder []byte
}

// Page reads the first keys of a range, at most limit, without their values. more reports whether
// the range has further ones.
type Page[K any] func(key, end []byte, limit int64) (items []K, more bool, err error)

// Walk iterates over the entries of the keys with a prefix, beginning at the key start if that is
// later. keyOf returns the key of an item. An empty separator makes no folders. Walk yields an
// error without an entry, and ends after it.
func Walk[K any](prefix, start, separator []byte, keyOf func(K) []byte,
	read Page[K]) iter.Seq2[Entry[K], error] {
	return func(yield func(Entry[K], error) bool) {
		end := End(prefix)
		next := prefix
		if bytes.Compare(start, next) > 0 {
			next = start
		}
		for limit := int64(firstPage); ; {
			items, more, err := read(From(next), end, limit)
			if err != nil {
				yield(Entry[K]{}, err)
				return
			}
			limit = min(2*limit, largestPage)
			advanced, size := false, 0
			for _, item := range items {
				key := keyOf(item)
				if size += len(key); size > pageBytes {
					limit = firstPage
				}
				if bytes.Compare(key, next) < 0 {
					continue // in the folder before
				}
				if advanced = true; !bytes.HasPrefix(key, prefix) {
					yield(Entry[K]{}, fmt.Errorf("%w: %q does not begin with %q",
						ErrPage, key, prefix))
					return
				}
				e := Entry[K]{Key: key, Item: item, Folder: folderOf(key, prefix, separator)}
				if !yield(e, nil) {
					return
				}
				if e.Folder == nil {
					next = append(slices.Clone(key), 0)
					continue
				}
				limit = firstPage
				if next = End(e.Folder); Unbounded(next) {
					return // there is no key after the folder
				}
			}
			switch {
			case !more:
				return
			case !advanced:
				yield(Entry[K]{}, fmt.Errorf("%w: there are more keys, but none of them", ErrPage))
				return
			}
		}
	}
}

// folderOf returns the prefix of the folder of a key, nil if it is in none.
func folderOf(key, prefix, separator []byte) []byte {
	if len(separator) == 0 {
		return nil
	}
	at := bytes.Index(key[len(prefix):], separator)
	if at < 0 {
		return nil
	}
	return key[:len(prefix)+at+len(separator)]
}

// End returns the end of the range of keys with a prefix, in the form of the API.
func End(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 255 {
			return append(slices.Clone(prefix[:i]), prefix[i]+1)
		}
	}
	return []byte{0} // all keys from the prefix on
}

// Unbounded reports whether a range with this end has all keys from its first one on.
func Unbounded(end []byte) bool { return len(end) == 1 && end[0] == 0 }

// From returns the first key of a range in the form of the API.
func From(key []byte) []byte {
	if len(key) == 0 {
		return []byte{0}
	}
	return key
}
