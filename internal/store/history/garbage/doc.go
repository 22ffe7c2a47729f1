// Package garbage keeps account of what is dead in the segments of the history, and chooses the segments to rewrite. It
// does no I/O and knows no file.
//
// A Set holds the dead records of one segment. Its caller guards it.
package garbage
