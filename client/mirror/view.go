package mirror

import (
	"cmp"
	"iter"
	"strings"

	"github.com/tidwall/btree"

	"vigil/client"
)

// Item is a key of a mirror. It never changes.
type Item[T any] struct {
	Key string
	// Value is the decoded value, the zero value if Err is set.
	Value T
	// Err is why the value could not be decoded.
	Err error

	// CreateRevision is the revision of the key's creation, ModRevision the revision of its last
	// change. Version counts the changes since the creation.
	CreateRevision, ModRevision, Version int64
	// Lease is the lease the key is attached to, 0 if none.
	Lease client.LeaseID
}

// View is the range at one revision. It never changes, and is safe for concurrent use.
type View[T any] struct {
	revision int64
	items    *btree.BTreeG[*Item[T]]
	indexes  map[string]*index[T]
}

// index finds items by words.
type index[T any] struct {
	words func(*Item[T]) []string
	tree  *btree.BTreeG[entry[T]]
}

type entry[T any] struct {
	word string
	item *Item[T]
}

func newView[T any](indexes map[string]func(*Item[T]) []string) *View[T] {
	v := &View[T]{indexes: make(map[string]*index[T], len(indexes))}
	v.items = btree.NewBTreeGOptions(func(a, b *Item[T]) bool { return a.Key < b.Key },
		btree.Options{NoLocks: true})
	for name, words := range indexes {
		less := func(a, b entry[T]) bool {
			return cmp.Or(strings.Compare(a.word, b.word),
				strings.Compare(a.item.Key, b.item.Key)) < 0
		}
		v.indexes[name] = &index[T]{words: words,
			tree: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
	}
	return v
}

// clone returns a view that can be changed while v is read. Only one goroutine may clone.
func (v *View[T]) clone() *View[T] {
	c := &View[T]{revision: v.revision, items: v.items.Copy(),
		indexes: make(map[string]*index[T], len(v.indexes))}
	for name, x := range v.indexes {
		c.indexes[name] = &index[T]{words: x.words, tree: x.tree.Copy()}
	}
	return c
}

// at returns a view with the same items at a later revision.
func (v *View[T]) at(revision int64) *View[T] {
	return &View[T]{revision: revision, items: v.items, indexes: v.indexes}
}

// set adds an item and returns the one that it replaces.
func (v *View[T]) set(it *Item[T]) *Item[T] {
	old, _ := v.items.Set(it)
	for _, x := range v.indexes {
		x.remove(old)
		if it.Err == nil {
			for _, w := range x.words(it) {
				x.tree.Set(entry[T]{w, it})
			}
		}
	}
	return old
}

// remove removes an item and returns it, nil if there is none.
func (v *View[T]) remove(key string) *Item[T] {
	old, _ := v.items.Delete(&Item[T]{Key: key})
	for _, x := range v.indexes {
		x.remove(old)
	}
	return old
}

func (x *index[T]) remove(old *Item[T]) {
	if old != nil && old.Err == nil {
		for _, w := range x.words(old) {
			x.tree.Delete(entry[T]{w, old})
		}
	}
}

// Revision is the revision of the store that the view shows.
func (v *View[T]) Revision() int64 { return v.revision }

// Len is the number of keys.
func (v *View[T]) Len() int { return v.items.Len() }

// Get returns the item of a key.
func (v *View[T]) Get(key string) (*Item[T], bool) { return v.items.Get(&Item[T]{Key: key}) }

// All iterates over the items in the order of their keys.
func (v *View[T]) All() iter.Seq[*Item[T]] { return v.From("") }

// From iterates over the items from key on.
func (v *View[T]) From(key string) iter.Seq[*Item[T]] {
	return func(yield func(*Item[T]) bool) { v.items.Ascend(&Item[T]{Key: key}, yield) }
}

// Prefix iterates over the items whose keys begin with prefix.
func (v *View[T]) Prefix(prefix string) iter.Seq[*Item[T]] {
	return func(yield func(*Item[T]) bool) {
		v.items.Ascend(&Item[T]{Key: prefix}, func(it *Item[T]) bool {
			return strings.HasPrefix(it.Key, prefix) && yield(it)
		})
	}
}

// Find iterates over the items which an index has under a word, in the order of their keys. It
// panics if the mirror has no such index.
func (v *View[T]) Find(name, word string) iter.Seq[*Item[T]] {
	x := v.indexes[name]
	if x == nil {
		panic("mirror: no index " + name)
	}
	return func(yield func(*Item[T]) bool) {
		x.tree.Ascend(entry[T]{word, &Item[T]{}},
			func(e entry[T]) bool { return e.word == word && yield(e.item) })
	}
}

// diff returns the changes from old to v, in the order of keys.
func (v *View[T]) diff(old *View[T]) []Change[T] {
	var changes []Change[T]
	next, stop := iter.Pull(old.All())
	defer stop()
	was, more := next()
	for is := range v.All() {
		for ; more && was.Key < is.Key; was, more = next() {
			changes = append(changes, Change[T]{Old: was})
		}
		switch {
		case !more || was.Key != is.Key:
			changes = append(changes, Change[T]{New: is})
		case was != is:
			changes = append(changes, Change[T]{was, is})
			fallthrough
		default:
			was, more = next()
		}
	}
	for ; more; was, more = next() {
		changes = append(changes, Change[T]{Old: was})
	}
	return changes
}
