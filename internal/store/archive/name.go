package archive

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// The names of the objects, below the prefix of the bucket.
const (
	IdentityName = "vigil-archive.json"
	BasePrefix   = "base/"
	PartPrefix   = "part/"
	LogPrefix    = "log/"
)

// BaseName returns the name of the manifest of the state at an index: names are in the order of the
// indexes.
func BaseName(index, term uint64) string {
	return fmt.Sprintf("%s%016x-%016x.json", BasePrefix, index, term)
}

// ParseBaseName returns the index and the term of a manifest's name.
func ParseBaseName(name string) (index, term uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, BasePrefix)
	if !ok {
		return 0, 0, false
	}
	if rest, ok = strings.CutSuffix(rest, ".json"); !ok || len(rest) != 33 {
		return 0, 0, false
	}
	if index, ok = parseHex(rest[:16]); !ok {
		return 0, 0, false
	}
	term, ok = parseHex(rest[17:])
	return index, term, ok && name == BaseName(index, term)
}

// NewLogName returns a new name of a log object with the entries first to last. Names are in the
// order of the first index. Two senders do not have the same name, because 8 digits are random.
func NewLogName(first, last uint64) string {
	var b [4]byte
	_, _ = rand.Read(b[:])
	return logName(first, last, hex.EncodeToString(b[:]))
}

func logName(first, last uint64, random string) string {
	return fmt.Sprintf("%s%016x-%016x-%s", LogPrefix, first, last, random)
}

// LogAfter returns the name that precedes the names of all log objects whose first index is at
// least first.
func LogAfter(first uint64) string {
	if first == 0 {
		return LogPrefix
	}
	return fmt.Sprintf("%s%016x~", LogPrefix, first-1)
}

// ParseLogName returns the indexes of a log object's name.
func ParseLogName(name string) (first, last uint64, ok bool) {
	rest, ok := strings.CutPrefix(name, LogPrefix)
	if !ok || len(rest) != 16+1+16+1+8 {
		return 0, 0, false
	}
	if first, ok = parseHex(rest[:16]); !ok {
		return 0, 0, false
	}
	if last, ok = parseHex(rest[17:33]); !ok {
		return 0, 0, false
	}
	if _, ok = parseHex(rest[34:]); !ok {
		return 0, 0, false
	}
	return first, last, first > 0 && first <= last && name == logName(first, last, rest[34:])
}

// partName returns the name of a part by the SHA-256 of the object.
func partName(sum [32]byte) string { return PartPrefix + hex.EncodeToString(sum[:16]) }

// IsPartName reports whether a name is the name of a part.
func IsPartName(name string) bool {
	rest, ok := strings.CutPrefix(name, PartPrefix)
	if !ok || len(rest) != 32 {
		return false
	}
	_, ok1 := parseHex(rest[:16])
	_, ok2 := parseHex(rest[16:])
	return ok1 && ok2
}

// parseHex parses lower case hexadecimal digits.
func parseHex(s string) (uint64, bool) {
	if strings.ToLower(s) != s {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 16, 64)
	return n, err == nil && s[0] != '+'
}
