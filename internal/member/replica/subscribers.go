package replica

import (
	"vigil/internal/kv"
	"vigil/internal/member/replica/apply"
)

// publisher delivers events to watchers. The hub is one.
type publisher interface {
	Publish(rev int64, events []kv.Event)
	Withhold()
	Reset(rev int64)
}

// on returns a subscriber.
func on(name string, follow func(*apply.Commit)) apply.Subscriber {
	return apply.Subscriber{Name: name, Follow: follow}
}

// subscribers lists who follows the commits of the member. The order is the architecture of the
// member: each comment states the guarantee that rests on the position below it, and
// TestOrderOfSubscribers fails if the two change places.
func (r *Replica) subscribers(hub publisher) apply.Subscribers {
	return apply.Subscribers{
		Before: []apply.Subscriber{
			// A client must not read data that it has just lost the right to read: before the
			// store.
			on("rights", func(c *apply.Commit) {
				if c.UsersChanged {
					r.Access.Restrict(c.Users)
				}
			}),
		},
		// The store has committed the batch: a published event can be read, and so can the data of
		// an answer.
		After: []apply.Subscriber{
			// Watchers of users who have lost a right must not get these events, and it is the
			// services that check the rights: before the events.
			on("withhold", func(c *apply.Commit) {
				if c.UsersChanged && c.Users.Enabled() {
					hub.Withhold()
				}
			}),
			// Whoever learns of a change by an answer or a position finds its events published:
			// before both.
			on("events", func(c *apply.Commit) {
				switch {
				case c.Installed:
					hub.Reset(c.Revision)
				case len(c.Events) > 0:
					hub.Publish(c.Revision, c.Events)
				}
			}),
			// Whoever has waited for a position, or has got an answer, finds the replicated state
			// of that position: each part of it before both.
			on("members", func(c *apply.Commit) { r.roster.Follow(c.Members, c.At.Index) }),
			// The alarm CORRUPT of a member that is alone does not matter: after the members.
			on("alarms", func(c *apply.Commit) { r.Alarms.Follow(c.Alarms) }),
			on("level", func(c *apply.Commit) { r.API.Follow(c.Versions) }),
			// The archive loads the position first, and must not get claims that are older than it.
			on("lineage", func(c *apply.Commit) { r.Source.Follow(c.Lineage) }),
			// The leader counts a lease when a client knows that it is granted.
			on("leases", func(c *apply.Commit) { r.lessor.Follow(c.Leases, c.At.Term) }),
			// A token that is returned is valid here.
			on("tokens", func(c *apply.Commit) {
				for _, t := range c.Tokens {
					r.Access.AddToken(t)
				}
				if c.TokensEnd > 0 {
					r.Access.EndTokens(c.TokensEnd)
				}
			}),
			// The services review their watchers and release the events that are withheld by now:
			// after withhold. If auth was disabled, tokens end: after the tokens.
			on("announce", func(c *apply.Commit) {
				if c.UsersChanged {
					r.Access.Announce(c.Users)
				}
			}),
			// Reads and calls that wait for the position go on. A client that has its answer does
			// not find the member lagging behind it: before the answers.
			on("position", func(c *apply.Commit) { r.applied.Advance(c.At.Index) }),
			on("answers", r.applier.Answer),
			// Nobody waits for the rest.
			on("trail", func(c *apply.Commit) {
				if !c.Installed {
					r.trail.Add(c.At.Index, c.Requests, c.Bytes)
				}
			}),
			on("count", func(c *apply.Commit) { r.proposals.applied.Add(c.Requests) }),
		},
	}
}
