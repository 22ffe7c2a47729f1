// Package inspect reads the directory of a history, which need not be open, and reports the content
// of each file and its damage. It changes nothing. It uses the decoders and the rules of history's
// Open, and goes on after damage.
package inspect
