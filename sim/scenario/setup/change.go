package setup

// The changes of the membership.
const (
	AddLearner = "add learner" // and promote it
	AddVoter   = "add voter"
	Remove     = "remove"
	Replace    = "replace"              // remove, then add with an empty disk
	ReplaceBy  = "replace by a learner" // likewise, and promote it
	Move       = "move"                 // to another peer URL
	Settle     = "settle"               // promote all learners
)

// Change configures a process that changes the membership, and ends then.
type Change struct {
	Kind      string
	Endpoints []string
	// PeerURL is the address of the member, and NewURL the one that it moves to.
	PeerURL, NewURL string
	// Until is when it gives up.
	Until int64
}

// Members are the members of the cluster, as a linearizable read that was called at Called returned them, or the addition
// of a member that was answered then.
type Members struct {
	Called int64
	List   []Listed
}

// Listed is a member of the cluster.
type Listed struct {
	ID      uint64
	PeerURL string
	Learner bool
}
