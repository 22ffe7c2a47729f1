// Package calls counts the calls that have ended, and describes them for the log.
package calls
