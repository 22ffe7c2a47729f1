package command

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// numberError returns the error for a text that is not a number of the kind.
func numberError(err error, kind string) error {
	e, ok := errors.AsType[*strconv.NumError](err)
	switch {
	case !ok:
		return err
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("%q is too large or too small for %s", e.Num, kind)
	}
	return fmt.Errorf("want %s, not %q", kind, e.Num)
}

const (
	wholeNumber = "a whole number"
	hexNumber   = "a hexadecimal number"
)

// Whole parses a whole number.
func Whole(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, numberError(err, wholeNumber)
}

// Seconds converts seconds to a duration. Larger numbers give the longest duration, 292 years: no
// lease lives that long.
func Seconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Second)
	return time.Duration(max(-most, min(n, most))) * time.Second
}

// Hex parses the ID of a lease, in hexadecimal.
func Hex(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 16, 64)
	return n, numberError(err, hexNumber)
}

// UnsignedHex parses the ID of a member, in hexadecimal.
func UnsignedHex(s string) (uint64, error) {
	n, err := strconv.ParseUint(s, 16, 64)
	return n, numberError(err, hexNumber)
}
