package format

import (
	"errors"
	"fmt"
)

// ErrVersion means that this program does not read the version of the format in which a file is.
var ErrVersion = errors.New("history: unknown format version")

// CheckVersion rejects a file in another version of the format. Each file has its own version.
func CheckVersion(version uint32, path string) error {
	if version != Version {
		return fmt.Errorf("%w: %s is in version %d, this program reads version %d", ErrVersion,
			path, version, Version)
	}
	return nil
}
