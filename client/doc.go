// Package client talks to a Vigil cluster, or to an etcd cluster from 3.5 on.
//
//	c, err := client.Connect(ctx, client.Config{Endpoints: []string{"127.0.0.1:2379"}})
//	...
//	defer c.Close()
//	_, err = c.Put(ctx, "colour", []byte("green"))
//	r, err := c.Get(ctx, "colour")
//	fmt.Println(r.KV().Value)
//
// What is safe is what is easy:
//
//  1. No event is lost in silence. A Watcher delivers each once and in order, over lost connections, members
//     and leaders; when it cannot, its iteration ends with the reason and, where there is one, the revision to
//     go on from.
//  2. No buffer grows without bound. A watcher that is not read leaves its events with the server.
//  3. No write is made twice. One that got no answer fails with ErrUncertain; only what is certain not to have
//     been applied is tried again. Reads are tried again, a bounded number of times; an answer is that of one
//     attempt, and a listing is of one revision.
//  4. What a client reads does not go back in time while its member lasts: all calls go to one member until
//     that is lost, says that it does not serve, or has no leader; then to another, and back when it is healthy.
//  5. Every call takes a context and ends with it. Close ends everything and leaves nothing running.
//
// Errors are found with errors.Is and errors.As: what a server says is in the list of Err variables; an Error has the
// call, the member and the words.
//
// # Compatibility
//
// What this package and the packages below it export keeps its meaning, and compiles, within a major version of the
// module: functions, methods, fields and errors are only added. Fields may be added to structs, so write them
// with names; interfaces for options are not for implementing elsewhere. The calls for operators return the
// messages of go.etcd.io/etcd/api/v3, whose compatibility is theirs.
package client
