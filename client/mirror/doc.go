// Package mirror keeps a copy of a range of keys in memory: listed once, then updated by a watch,
// decoded, and optionally indexed. It suits controllers, and services that follow their
// configuration.
//
//	m, err := mirror.Follow(ctx, c, "services/", mirror.JSON[Service])
//	...
//	view, err := m.Ready(ctx)
//	web, ok := view.Get("services/web")
//
// Guarantees:
//
//  1. Every View is the complete range at one revision of the store. The revisions of Views only
//     increase.
//  2. No change is missed. When the watch cannot continue, because its next revision was compacted
//     or the store was restored from a backup, the range is listed again and the difference is
//     reported as changes. Only then can the revisions of a restored store decrease, and several
//     changes of a key between two lists are reported as one.
//  3. A mirror retries without end, with a pause that grows to some seconds. Until it succeeds its
//     last View remains, and Status reports since when it may be outdated and why. A mirror ends
//     with its context or by Close.
//  4. A value that cannot be decoded is an Item with an error, not a missing key.
package mirror
