// Package packaging holds the files in packaging/ and the pages for operators against the program: what they set
// is read by it, what they name is exported by it, and what they point to is there.
package packaging
