// Package memory bounds the memory of a running member, as counted by the kernel.
package memory
