package main

import "os"

// headroom is how many bytes the heap may grow between two garbage collections beyond what the
// collector allows by itself. Under load a member keeps little and allocates much: with a small heap
// it would collect many times a second. Bounded bytes rather than a larger GOGC, so that a member
// with a large index does not double it.
const headroom = 64 << 20

// ballast returns bytes that count as live as long as they are kept. Nobody touches them, so they
// take address space and no memory. It returns nil if the operator has set GOGC.
func ballast() []byte {
	if os.Getenv("GOGC") != "" {
		return nil
	}
	return make([]byte, headroom)
}
