package main

import "os"

// headroom is how many bytes the heap may grow between two garbage collections beyond what the
// collector allows by itself. Under load a member keeps little and allocates much: with a small heap
// it would collect many times a second. Bounded bytes rather than a larger GOGC, so that a member
// with a large index does not double it.
const headroom = 64 << 20

// ballast is counted as live and never touched, so it takes address space and no memory.
var ballast []byte

// reserveHeadroom gives the collector its headroom, unless the operator has set GOGC.
func reserveHeadroom() {
	if os.Getenv("GOGC") == "" {
		ballast = make([]byte, headroom)
	}
}
