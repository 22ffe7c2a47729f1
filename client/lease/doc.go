// Package lease keeps leases alive, any number of them on one stream, and reports the end of each.
//
//	k := lease.NewKeeper(c)
//	defer k.Close()
//	l, err := k.Grant(ctx, 10*time.Second)
//	...
//	c.Put(ctx, "here", nil, client.WithLease(l.ID()))
//	select {
//	case <-l.Lost():
//		log.Print(l.Err()) // stop what depends on the lease
//	...
//
// A lease is certainly alive until its time to live has passed since the last answered keep-alive
// was sent. From that moment on, or as soon as the server reports that it does not exist, it counts
// as lost: Lost is closed and Err returns the reason. That is early rather than late, also when the
// member cannot be reached. A lost lease is no longer kept alive, and the caller must create
// another.
//
// A keep-alive is sent whenever a third of the time has passed. While an answer is overdue the
// state is Late, with the reason, so that problems are visible before the lease is lost.
package lease
