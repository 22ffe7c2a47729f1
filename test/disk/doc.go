// Package disk runs a server on disks that fill up, fail and return wrong data.
package disk
