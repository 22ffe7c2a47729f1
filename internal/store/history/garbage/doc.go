// Package garbage keeps account of the dead records in the segments of the history, and chooses the
// segments to rewrite. It does no I/O and knows no file.
//
// A Set holds the dead records of one segment. Its caller guards it.
package garbage
