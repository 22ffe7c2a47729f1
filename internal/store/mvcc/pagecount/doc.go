// Package pagecount counts the keys of later pages of a list without visiting them.
//
// A client that reads a list page by page stays at the revision of the first page, while the tree
// of the newest revision moves on and its counts no longer hold. Trees keeps older trees, whose
// counts hold. A tree costs memory, so few are kept, and a long list may outlive its tree. Rests
// remembers, for a few bytes per list, how many keys remained after the last page; one page of the
// list then visits its keys, and the pages after it do not.
package pagecount
