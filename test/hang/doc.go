// Package hang runs clusters in which the disk of one member hangs, is slow or is full, or the
// reader of its log reads nothing, while its process goes on. Each member has a file system of its
// own, which is frozen: that needs root.
package hang
