// Package client is a client for Vigil clusters, and for etcd clusters from version 3.5 on.
//
//	c, err := client.Connect(ctx, client.Config{Endpoints: []string{"127.0.0.1:2379"}})
//	...
//	defer c.Close()
//	_, err = c.Put(ctx, "color", []byte("green"))
//	r, err := c.Get(ctx, "color")
//	fmt.Println(r.KV().Value)
//
// The default behaviour is safe:
//
//  1. No event is lost silently. A Watcher delivers each event once and in order, across lost
//     connections, members and leaders. When it cannot, its iteration ends with the reason and, if
//     there is one, the revision to continue from.
//  2. No buffer grows without bound. The events of a watcher that is not read stay at the server.
//  3. No write is made twice. A write without an answer fails with [ErrUncertain]; a write is
//     retried only if it was certainly not applied. Reads are retried, a bounded number of times.
//     An answer comes from one attempt, and a listing shows one revision.
//  4. Reads of a client do not go back in time while its member works. All calls use one member
//     until it is lost, reports that it does not serve, or has no leader. Then they use another,
//     and return when the first is healthy again.
//  5. Every call takes a context and ends with it. Close ends all calls and goroutines.
//
// Errors are found with errors.Is and errors.As. The Err variables list the errors of servers; an
// Error has the call, the member and the text.
//
// # Compatibility
//
// Within a major version of the module, the exported names of this package and the packages below
// it keep compiling and keep their meaning: functions, methods, fields and errors are only added.
// Fields may be added to structs, so write struct literals with field names. Other packages must
// not implement the interfaces of options.
//
// The API has no messages of protocol buffers, except through [Client.Conn]: a program that makes a
// call which this package does not have brings the messages itself.
package client
