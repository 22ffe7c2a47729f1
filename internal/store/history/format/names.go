package format

import (
	"fmt"
)

// Suffixes of file names.
const (
	LogSuffix    = ".log" // a segment that is not sealed
	SealedSuffix = ".seg"
	TempSuffix   = ".tmp" // an unfinished file
)

// SegmentName returns the name of a segment that is not sealed.
func SegmentName(id uint64) string { return fmt.Sprintf("%016x.log", id) }

// SealedName returns the name of a sealed segment that stands for the segments first to last.
func SealedName(first, last uint64, generation uint32) string {
	return fmt.Sprintf("%016x-%016x-%08x.seg", first, last, generation)
}
