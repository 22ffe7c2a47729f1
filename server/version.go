package server

import "vigil/internal/release"

// Version is Vigil's own version.
var Version = release.Version

// APIVersion is the version of the etcd API that is served: kv.APIVersion with a patch version.
// Clients switch features on and off by it.
const APIVersion = release.APIVersion
