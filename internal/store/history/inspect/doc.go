// Package inspect reads the directory of a history that no member needs to have open, changes nothing, and reports what is
// in each file and what is wrong with it. It uses the decoders and the rules of history's Open, and goes on after damage.
package inspect
