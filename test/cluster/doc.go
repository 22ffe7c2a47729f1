// Package cluster runs several members as real processes on loopback and changes, stops, kills and
// pauses them while stock clients write. A stock etcd must pass as well (VIGIL_SUBJECT=etcd),
// except for tests that say otherwise.
//
// VIGIL_TRIALS is how often leaders are killed and stopped; the times that TestKilledLeader and
// TestStoppedLeader log are meaningful from about twenty trials on.
package cluster
