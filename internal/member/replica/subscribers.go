package replica

import "vigil/internal/kv"

// subscriber is a part of the member that follows its commits. follow is called by the apply
// goroutine, once for each commit. It neither waits for anything nor keeps the commit.
type subscriber struct {
	name   string // for tests
	follow func(*Commit)
}

// subscribers are called for each commit in their order, before and after its state can be read.
type subscribers struct{ before, after []subscriber }

// publisher delivers events to watchers. The hub is one.
type publisher interface {
	Publish(rev int64, events []kv.Event)
	Withhold()
	Reset(rev int64)
}

// subscribers lists who follows the commits of the member. The order is the architecture of the
// member: each comment states the guarantee that rests on the position below it, and
// TestOrderOfSubscribers fails if the two change places.
func (r *Replica) subscribers(hub publisher) subscribers {
	return subscribers{
		before: []subscriber{
			// A client must not read data that it has just lost the right to read: before the
			// store.
			{"rights", func(c *Commit) {
				if c.UsersChanged {
					r.Access.Restrict(c.Users)
				}
			}},
		},
		// The store has committed the batch: a published event can be read, and so can the data of
		// an answer.
		after: []subscriber{
			// Watchers of users who have lost a right must not get these events, and it is the
			// services that check the rights: before the events.
			{"withhold", func(c *Commit) {
				if c.UsersChanged && c.Users.Enabled() {
					hub.Withhold()
				}
			}},
			// Whoever learns of a change by an answer or a position finds its events published:
			// before both.
			{"events", func(c *Commit) {
				switch {
				case c.Installed:
					hub.Reset(c.Revision)
				case len(c.Events) > 0:
					hub.Publish(c.Revision, c.Events)
				}
			}},
			// Whoever has waited for a position, or has got an answer, finds the replicated state
			// of that position: each part of it before both.
			{"members", func(c *Commit) { r.roster.Follow(c.Members, c.At.Index) }},
			// The alarm CORRUPT of a member that is alone does not matter: after the members.
			{"alarms", func(c *Commit) { r.Alarms.Follow(c.Alarms) }},
			{"level", func(c *Commit) { r.API.Follow(c.Versions) }},
			{"times", func(c *Commit) { r.Times.Follow(c.Times) }},
			// The archive loads the position first, and must not get claims that are older than it.
			{"lineage", func(c *Commit) { r.Source.Follow(c.Lineage) }},
			// The leader counts a lease when a client knows that it is granted.
			{"leases", func(c *Commit) { r.lessor.Follow(c.Leases, c.At.Term) }},
			// A token that is returned is valid here.
			{"tokens", func(c *Commit) {
				for _, t := range c.Tokens {
					r.Access.AddToken(t)
				}
				if c.TokensEnd > 0 {
					r.Access.EndTokens(c.TokensEnd)
				}
			}},
			// The services review their watchers and release the events that are withheld by now:
			// after withhold. If auth was disabled, tokens end: after the tokens.
			{"announce", func(c *Commit) {
				if c.UsersChanged {
					r.Access.Announce(c.Users)
				}
			}},
			// Reads and calls that wait for the position go on. A client that has its answer does
			// not find the member lagging behind it: before the answers.
			{"position", func(c *Commit) { r.applied.Advance(c.At.Index) }},
			{"answers", r.applier.answer},
			// Nobody waits for the rest.
			{"trail", func(c *Commit) {
				if !c.Installed {
					r.trail.Add(c.At.Index, c.Requests, c.Bytes)
				}
			}},
			{"count", func(c *Commit) { r.proposals.applied.Add(c.Requests) }},
		},
	}
}
