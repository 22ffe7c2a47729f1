// Package disk runs a server on disks that fill up, fail and lie.
package disk
