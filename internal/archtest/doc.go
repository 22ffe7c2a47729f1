// Package archtest holds the test that keeps the import table of ARCHITECTURE.md true: which
// package may import which, inside the module and outside of it. It has no code of its own.
//
// A package that is not in the table fails the test, so that a new folder is a decision and not an
// accident; so does an arrow that the table does not allow, with the reason why it is not there.
package archtest
