// Package lessor is the leader's clock of leases: it proposes lease revocations and remaining-TTL
// checkpoints, and answers keep-alives.
//
// Leases themselves are replicated state (package lease). Time is not: only the leader counts it,
// and checkpoints keep its count for the next leader. Members that do not lead ask the leader.
//
// # Invariants
//
//  1. A lease does not expire before the TTL that any leader has promised is over.
//  2. A TTL is promised only after a quorum has confirmed that this member leads, at most one tick
//     ago.
//  3. A proposal names its term and has no effect in another one.
//  4. Time in which this process was suspended, or made no progress with committed entries, counts
//     as at most one election timeout.
//  5. A member waits for an answer only as long as the member that it asked leads.
package lessor
