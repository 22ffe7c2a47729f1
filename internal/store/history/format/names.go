package format

import (
	"fmt"
)

// Names of files, and suffixes of them.
const (
	LogSuffix    = ".log" // a segment that is not sealed
	SealedSuffix = ".seg"
	TempSuffix   = ".tmp" // an unfinished file

	// ReserveName is the file of allocated space. No segment has such a name.
	ReserveName = "reserve"
)

// SegmentName returns the name of a segment that is not sealed.
func SegmentName(id uint64) string { return fmt.Sprintf("%016x.log", id) }

// SealedName returns the name of a sealed segment that stands for the segments first to last.
func SealedName(first, last uint64, generation uint32) string {
	return fmt.Sprintf("%016x-%016x-%08x.seg", first, last, generation)
}
