package scenario

import (
	"math/rand/v2"
	"time"

	"vigil/sim/scenario/setup"
	"vigil/sim/world"
)

// rescuing bounds the time in which a member that was started with --force-new-cluster serves and
// has a second voter.
const rescuing = 60 * time.Second

// rescue starts one of the members, which have all stopped and have the same data, with
// --force-new-cluster. An operator adds a second voter on the machine of another former member. The
// answer to the addition may be lost: until the second voter starts there is no quorum.
func (r *run) rescue() {
	rng := rand.New(rand.NewPCG(r.plan.Seed, 3))
	chosen := rng.IntN(len(r.members))
	first, second := r.place(r.members[chosen]), r.place(r.members[(chosen+1)%len(r.members)])
	r.world.Note(first.Machine, "starts with --force-new-cluster")
	r.closing = false
	for _, p := range r.places {
		if p != first {
			p.removed, p.empty = true, true
		}
	}
	r.members = []*world.Machine{first.Machine}
	first.forced = true
	r.restart(first.Machine)
	first.forced = false
	c := setup.Change{Kind: setup.Rescue,
		Endpoints: []string{endpoint(first.Machine), endpoint(second.Machine)},
		Rescued:   endpoint(first.Machine), Rev: r.final,
		PeerURL: second.peerURL(second.ports[0]), Former: append(second.former, second.id),
		Until: int64(r.world.Now() + rescuing)}
	if rng.IntN(2) == 0 {
		c.Impatience = int64(200*time.Microsecond) + rng.Int64N(int64(8*time.Millisecond))
	}
	r.startChange(c)
	if err := r.world.Run(r.world.Now()+rescuing+10*time.Second,
		func() bool { return r.changing == nil || len(r.v) > 0 }); err != nil {
		r.v.Add("%v", err)
	}
	if !r.rescued && len(r.v) == 0 {
		r.v.Add("the cluster was not rescued in %v", rescuing)
	}
}
