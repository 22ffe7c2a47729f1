package history

import "fmt"

// The versions of the format that this program reads are oldestVersion to formatVersion, which is the
// one it writes. A version is that of one file: files of all readable versions may lie side by side,
// and a segment of an older one stays as it is until it is rewritten.
const oldestVersion = 1

// checkVersion refuses a file that this program cannot read.
func checkVersion(version uint32, path string) error {
	switch {
	case version > formatVersion:
		return fmt.Errorf("%w: %s is in version %d, which is newer than what this program reads, %s", ErrVersion, path, version, readable())
	case version < oldestVersion:
		return fmt.Errorf("%w: %s is in version %d, which is older than what this program reads, %s", ErrVersion, path, version, readable())
	}
	return nil
}

func readable() string {
	if oldest := oldestVersion; oldest != formatVersion {
		return fmt.Sprintf("versions %d to %d", oldest, formatVersion)
	}
	return fmt.Sprintf("version %d", formatVersion)
}
