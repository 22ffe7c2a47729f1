// Package release has the versions that the programs tell.
package release

// Version is Vigil's own version.
const Version = "0.1.0"

// APIVersion is the version of etcd that the programs behave as, the level of the API with a patch version. Clients switch
// features on and off by it.
const APIVersion = "3.7.3"
