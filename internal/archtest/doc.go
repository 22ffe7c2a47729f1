// Package archtest tests the structure of the source tree. It has no code of its own.
//
//  1. A package imports only what the table of this package allows. A package that is not in the
//     table fails the test, so a new folder is a decision; each forbidden import is reported with
//     the reason.
//  2. Every package of the table has a package comment, which says what it is for.
//  3. Imports between wings run one way.
//  4. Every line of the member's log passes through internal/logline and begins with constant text.
//  5. Paths in documents exist, and CHANGELOG.md has the version of the programs.
package archtest
