// Package lease keeps leases alive, any number of them on one stream, and never lets one end without a word.
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
// A lease is alive for certain until its time to live has passed since the last keep-alive that was answered was
// sent. From that moment on, or as soon as the server says that it is gone, it counts as lost: Lost is closed and Err
// says which of the two it was. That is early rather than late, also when the member cannot be reached. A lost lease
// is not kept alive any more, and the caller gets another.
//
// A keep-alive is sent whenever a third of the time has passed. While one is overdue the state is Late, with the
// reason, so that trouble is known before it is loss.
package lease
