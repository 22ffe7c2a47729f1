package validate

import (
	"math"
	"regexp"
	"strconv"

	"vigil/internal/kv"
)

// semantic is a version by semver.org, as etcd reads it. Patch version and what follows do not
// matter.
var semantic = regexp.MustCompile(`^([0-9]+)\.([0-9]+)\.([0-9]+)(-[0-9A-Za-z.-]*)?(\+[0-9A-Za-z.-]*)?$`)

// maxVersionText is the longest text in bytes that is parsed.
const maxVersionText = 256

// Version reads MAJOR.MINOR, or a semantic version of which it takes these.
func Version(s string) (kv.Version, bool) {
	if len(s) > maxVersionText {
		return kv.Version{}, false
	}
	parts := semantic.FindStringSubmatch(s)
	if parts == nil {
		parts = semantic.FindStringSubmatch(s + ".0")
	}
	if parts == nil {
		return kv.Version{}, false
	}
	var n [3]uint64
	for i := range n {
		var err error
		if n[i], err = strconv.ParseUint(parts[1+i], 10, 63); err != nil {
			return kv.Version{}, false
		}
	}
	// No cluster is at a level that is cut off here.
	return kv.Version{Major: uint32(min(n[0], math.MaxUint32)),
		Minor: uint32(min(n[1], math.MaxUint32))}, true
}
