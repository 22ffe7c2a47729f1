package wire

import "vigil/client/pbfield"

// sizeInt returns the size of a number with a tag of one byte, which all fields of answers have. It
// is 0 for a zero, which is left out.
func sizeInt(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + pbfield.SizeVarint(v)
}

func sizeBool(v bool) int {
	if v {
		return 2
	}
	return 0
}
