package server

import (
	"runtime"

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
