// Package memory holds what a running member may take of memory, as the kernel counts it.
package memory
