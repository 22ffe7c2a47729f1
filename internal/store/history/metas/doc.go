// Package metas keeps the meta records of a history in memory: the live values, and where the
// newest records are on disk. It does no I/O.
package metas
