package setup

// Status is what a member says about the cluster when it has applied an index of the raft log. It
// depends on nothing else.
type Status struct {
	Endpoint string
	Index    uint64
	Cluster  string
}
