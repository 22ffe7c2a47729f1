// Package trace watches the system calls of the server under test to see that a write is on disk
// before it is answered. It needs strace and the right to trace a child; the test fails where
// either is missing, because a proof that is left out proves nothing.
package trace
