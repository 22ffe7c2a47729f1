// Package proc builds the programs that the tests need and runs them as real processes on real
// sockets.
//
//  1. A program is built at most once in a test run, from the sources as they lie there.
//  2. No process outlives the test that started it, and none is ended by anything but its id.
//  3. Waiting is for a condition (a log line, an exit); a deadline only ends what is broken.
//  4. A restarted server finds its ports free.
package proc
