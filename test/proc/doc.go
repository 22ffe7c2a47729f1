// Package proc builds the programs that the tests need and runs them as real processes on real
// sockets.
//
//  1. A program is built at most once in a test run, from the sources of the checkout.
//  2. No process outlives the test that started it, and processes are stopped only by their id.
//  3. Functions wait for a condition (a log line, an exit); a deadline only ends a failed test.
//  4. A restarted server finds its ports free: each test process has ports of its own.
package proc
