// Package mirror keeps a copy of a range of keys in memory: listed once, then followed by a watch, decoded, and
// indexed if wanted. It is what a service that follows its configuration needs, or a controller.
//
//	m, err := mirror.Follow(ctx, c, "services/", mirror.JSON[Service])
//	...
//	view, err := m.Ready(ctx)
//	web, ok := view.Get("services/web")
//
// What a mirror promises:
//
//  1. Every View is the range exactly as it was at one revision of the store, all keys of it. Views only go
//     forward in revisions.
//  2. Nothing is missed: when the watch cannot go on, because what it needs was compacted or the store was
//     restored from a backup, the range is listed again and the difference is told as changes. Only then do
//     revisions of a restored store go back, and changes between two lists are told as one.
//  3. A mirror tries again for ever, with a pause that grows to some seconds; meanwhile its last View stays, and
//     Status says since when it is not known to be current and why. It ends with its context or by Close.
//  4. A value that cannot be decoded is an Item with an error, not a key that is missing.
package mirror
