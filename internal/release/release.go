// Package release has the versions that the programs report.
package release

import "runtime/debug"

// Version is Vigil's own version. The linker sets it in builds of a release, as it sets revision;
// nothing changes them at run time.
var Version = "0.1.0"

// revision is the source revision in builds whose build info lacks it, empty in other builds.
var revision string

// APIVersion is the version of etcd that the programs behave as, the level of the API with a patch
// version. Clients switch features on and off by it.
const APIVersion = "3.7.3"

// Source returns the commit that the program was built from, and whether the tree had changes that
// are not in it: "clean" or "modified". Both are "unknown" if the build did not record them, as
// with -buildvcs=false.
func Source() (commit, tree string) {
	if revision != "" {
		return revision, "clean" // a release is not built from files that differ from the commit
	}
	commit, tree = "unknown", "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return commit, tree
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			tree = "modified"
		case s.Key == "vcs.modified":
			tree = "clean"
		}
	}
	return commit, tree
}
