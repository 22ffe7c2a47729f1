package kv

import (
	"cmp"
	"errors"
	"fmt"
)

// Version is a level of the API, and of the data that goes with it. The zero value is none.
type Version struct{ Major, Minor uint32 }

// APIVersion is the highest level that this program speaks, and the one that a cluster speaks unless it
// is told otherwise.
var APIVersion = Version{3, 7}

// String is "MAJOR.MINOR".
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }

// Full is the level with a patch version of 0.
func (v Version) Full() string { return v.String() + ".0" }

// Compare orders levels.
func (v Version) Compare(o Version) int {
	return cmp.Or(cmp.Compare(v.Major, o.Major), cmp.Compare(v.Minor, o.Minor))
}

// Versions is which level a cluster speaks and where it goes.
type Versions struct {
	// Cluster is the level that is spoken.
	Cluster Version
	// Target is the level of the downgrade that is under way, zero if none is.
	Target Version
}

// CheckDowngrade says why a downgrade to a level cannot begin: it goes down by one, and one at a time.
func (v Versions) CheckDowngrade(to Version) error {
	if to.Major != v.Cluster.Major || to.Minor+1 != v.Cluster.Minor {
		return ErrDowngradeTarget
	}
	if v.Target != (Version{}) {
		return ErrDowngradeInProcess
	}
	return nil
}

// Next is the level that the cluster should speak next, with all its members running a program of level
// program.
func (v Versions) Next(program Version) Version {
	switch {
	case v.Target != (Version{}):
		return v.Target
	case v.Cluster.Compare(program) < 0:
		return program
	}
	return v.Cluster
}

// VersionOp says what a VersionChange does. The numbers are part of the log's format.
type VersionOp uint8

// The changes of Versions.
const (
	// DowngradeBegin sets Target.
	DowngradeBegin VersionOp = iota + 1
	// DowngradeEnd clears Target.
	DowngradeEnd
	// VersionSet sets Cluster.
	VersionSet
)

// VersionChange changes Versions.
type VersionChange struct {
	Op VersionOp
	// Version is not used by DowngradeEnd.
	Version Version
}

// The reasons for which a downgrade does not begin or end.
var (
	// ErrDowngradeTarget: the level is not the one below the cluster's.
	ErrDowngradeTarget = errors.New("invalid downgrade target version")
	// ErrDowngradeInProcess: a downgrade is under way.
	ErrDowngradeInProcess = errors.New("cluster has a downgrade job in progress")
	// ErrNoDowngrade: none is.
	ErrNoDowngrade = errors.New("no inflight downgrade job")
	// ErrVersionUnknown: not all members know of levels yet.
	ErrVersionUnknown = errors.New("cluster version not found during downgrade")
)
