package format

import (
	"errors"
	"fmt"
)

// ErrVersion means that a file is in a version of the format that this program does not read.
var ErrVersion = errors.New("history: unknown format version")

// OldestVersion is the oldest version that this program reads. Each file has its own version: a directory may hold files
// of all readable versions, and a segment of an older version stays as it is until it is rewritten.
const OldestVersion = 1

// CheckVersion rejects a file that this program cannot read.
func CheckVersion(version uint32, path string) error {
	switch {
	case version > Version:
		return fmt.Errorf("%w: %s is in version %d, which is newer than what this program reads, %s", ErrVersion, path, version, ReadableVersions())
	case version < OldestVersion:
		return fmt.Errorf("%w: %s is in version %d, which is older than what this program reads, %s", ErrVersion, path, version, ReadableVersions())
	}
	return nil
}

// ReadableVersions returns the readable versions as text.
func ReadableVersions() string {
	if oldest := OldestVersion; oldest != Version {
		return fmt.Sprintf("versions %d to %d", oldest, Version)
	}
	return fmt.Sprintf("version %d", Version)
}
