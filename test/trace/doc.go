// Package trace watches the system calls of the server under test to verify that a write is on disk
// before it is answered. It needs strace and the right to trace a child; the test fails if
// either is missing, because a skipped proof proves nothing.
package trace
