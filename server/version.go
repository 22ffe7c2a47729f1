package server

import (
	"runtime"
	"runtime/debug"

	"vigil/internal/release"
)

// Version is Vigil's own version.
const Version = release.Version

// APIVersion is the level of the etcd API that is served: kv.APIVersion with a patch version. Clients
// switch features on and off by it.
const APIVersion = release.APIVersion

// GoVersion returns the version of the Go toolchain the program was built with.
func GoVersion() string { return runtime.Version() }

// Platform returns the operating system and architecture, as "linux/amd64".
func Platform() string { return runtime.GOOS + "/" + runtime.GOARCH }

// commit returns the source revision the program was built from, "unknown" if the build did not
// record it.
func commit() string {
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
