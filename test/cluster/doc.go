// Package cluster runs several members as real processes on loopback and changes, stops, kills and pauses
// them while stock clients write. What it expects holds for a stock etcd too, where it says so by not
// saying otherwise: VIGIL_SUBJECT=etcd.
//
// VIGIL_TRIALS is how often leaders are killed and stopped; the times that TestKilledLeader and
// TestStoppedLeader log are of use from some twenty on.
package cluster
