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
	// look at a member that was started with --force-new-cluster, and add a second one
	Rescue = "rescue"
)

// Change configures a process that changes the membership, and ends then.
type Change struct {
	Kind      string
	Endpoints []string
	// PeerURL is the address of the member, and NewURL the one that it moves to.
	PeerURL, NewURL string
	// Linger is how long an added learner is not promoted, in nanoseconds.
	Linger int64
	// Until is when it gives up.
	Until int64
	// Users is set if clients must authenticate.
	Users bool
	// Former are the members that were at PeerURL before.
	Former []uint64
	// Rev and Rescued are for Rescue: the last revision, and the address of the member that was
	// started.
	Rev     int64
	Rescued string
	// Impatience is when the first addition is canceled under way, in nanoseconds; 0 if it is not.
	Impatience int64
}

// Members are the members of the cluster, as a linearizable read that was called at Called returned
// them, or the addition of a member that was answered then.
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
