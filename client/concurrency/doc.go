// Package concurrency has what programs agree by: sessions, locks, elections, transactions that are tried again,
// and barriers.
//
//	s, err := concurrency.NewSession(ctx, c, 10*time.Second)
//	...
//	defer s.Close(ctx)
//	err = concurrency.NewMutex(s, "locks/report").While(ctx, func(ctx context.Context, h *concurrency.Held) error {
//		// ctx ends when the lock may be lost; a store that others write as well is told h.Fence().
//		_, err := c.Txn(ctx).If(h.Guard()).Then(client.OpPut("report", b)).Commit()
//		return err
//	})
//
// A lock in a distributed system is a promise with an end: when the program is cut off from the cluster for as long as
// the session's time to live, others get the lock, whether the program has noticed or not. So:
//
//  1. Whatever is held has a channel that is closed, and a context that ends, as soon as it may be lost, which is
//     at the latest when others could get it, as far as the program runs at all.
//  2. It has a fencing revision, Fence, which is higher for every later holder. What the lock protects should
//     refuse a lower one than it has seen. In the store itself that is the condition Guard.
//  3. Nothing is lost in silence: sessions have a state with a reason.
//
// Locks and elections use the keys that the packages of etcd's own client use, NAME/LEASE in the order of their
// create revisions, so programs with either, etcdctl lock and elect, and the Lock and Election services exclude each
// other.
package concurrency
