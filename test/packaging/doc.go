// Package packaging checks the files in packaging/ and the pages for operators: the program accepts
// their settings, and the targets of their links exist.
package packaging
