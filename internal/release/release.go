// Package release has the versions that the programs report.
package release

import "runtime/debug"

// Version is Vigil's own version. The linker sets it in builds of a release, as it sets revision;
// nothing changes them at run time.
var Version = "0.1.0"

// revision is the source revision in builds that do not record it, empty in others.
var revision string

// APIVersion is the version of etcd that the programs behave as, the level of the API with a patch
// version. Clients switch features on and off by it.
const APIVersion = "3.7.3"

// SourceRevision returns the source revision that the program was built from, "unknown" if the
// build did not record it.
func SourceRevision() string {
	if revision != "" {
		return revision
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "unknown"
}
