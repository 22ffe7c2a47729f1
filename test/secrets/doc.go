// Package secrets looks for every secret of a test in all that a member and its tools leave behind:
// files, objects of the archive, lines of the log, pages, errors.
package secrets
