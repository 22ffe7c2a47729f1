package kv

import (
	"cmp"
	"errors"
	"fmt"
)

// Version is a level of the API and of its data. The zero value means none.
type Version struct{ Major, Minor uint32 }

// APIVersion is the highest level that this program speaks, and the level of a cluster without a
// downgrade.
var APIVersion = Version{3, 7}

// String returns the level as "MAJOR.MINOR".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Full returns the level with a patch version of 0.
func (v Version) Full() string { return v.String() + ".0" }

// Compare orders levels.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Major, o.Major), cmp.Compare(v.Minor, o.Minor))
}

// Versions is the level that a cluster speaks and the target of its downgrade.
type Versions struct {
	// Cluster is the level that the cluster speaks.
	Cluster Version
	// Target is the level of the downgrade in progress, zero if there is none.
	Target Version
}

// CheckDowngrade returns an error if a downgrade to a level cannot begin: a downgrade goes down one
// level, and only one runs at a time.
func (v Versions) CheckDowngrade(to Version) error {
	if to.Major != v.Cluster.Major || to.Minor+1 != v.Cluster.Minor {
		return ErrDowngradeTarget
	}
	if v.Target != (Version{}) {
		return ErrDowngradeInProcess
	}
	return nil
}

// Next returns the level that the cluster should speak next if all its members run a program of the
// given level.
func (v Versions) Next(program Version) Version {
	switch {
	case v.Target != (Version{}):
		return v.Target
	case v.Cluster.Compare(program) < 0:
		return program
	}
	return v.Cluster
}

// VersionOp is the kind of a VersionChange. The numbers are part of the log's format.
type VersionOp uint8

// The changes of Versions.
const (
	// DowngradeBegin sets Target.
	DowngradeBegin VersionOp = iota + 1
	// DowngradeEnd clears Target.
	DowngradeEnd
	// VersionSet sets Cluster, if Next still allows it.
	VersionSet
)

// VersionChange changes Versions.
type VersionChange struct {
	Op VersionOp
	// DowngradeEnd does not use Version.
	Version Version
}

// The errors of a downgrade.
var (
	// ErrDowngradeTarget: the level is not the one below the cluster's.
	ErrDowngradeTarget = errors.New("invalid downgrade target version")
	// ErrDowngradeInProcess: a downgrade is in progress.
	ErrDowngradeInProcess = errors.New("cluster has a downgrade job in progress")
	// ErrNoDowngrade: no downgrade is in progress.
	ErrNoDowngrade = errors.New("no inflight downgrade job")
)
