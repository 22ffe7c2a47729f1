// Package concurrency coordinates programs: sessions, locks, elections, transactions with retries,
// and barriers.
//
//	s, err := concurrency.NewSession(ctx, c, 10*time.Second)
//	...
//	defer s.Close(ctx)
//	err = concurrency.NewMutex(s, "locks/report").While(ctx, func(ctx context.Context, h *concurrency.Held) error {
//		// ctx ends when the lock may be lost; send h.Fence() to a store that others write as well.
//		_, err := c.Txn(ctx).If(h.Guard()).Then(client.OpPut("report", b)).Commit()
//		return err
//	})
//
// A lock in a distributed system can be lost: when the program is disconnected from the cluster for
// longer than the session's time to live, another program gets the lock, whether the first one has
// noticed or not. Therefore:
//
//  1. A lock or leadership has a channel that is closed, and a context that ends, as soon as it may
//     be lost. That is at the latest when another program could get it, provided that this program
//     runs.
//  2. It has a fencing revision, Fence, which is higher for every later holder. The protected
//     resource should reject a lower one than it has seen. In the store itself that is the
//     condition Guard.
//  3. Every loss is reported: sessions have a state with a reason.
//
// Locks and elections use the same keys as the packages of etcd's own client: NAME/LEASE in the
// order of their create revisions. So they work together with such programs, with etcdctl lock and
// elect, and with the Lock and Election services.
package concurrency
