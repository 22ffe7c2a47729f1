//go:build !linux

package peer

import "time"

func setOptions(uintptr, time.Duration) {}
