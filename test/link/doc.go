// Package link is the network between the members of a cluster under test: TCP proxies on loopback,
// one in front of each node, whose behaviour is set for each pair of nodes and each direction.
//
//  1. A connection belongs to the node whose process dialed it and the node it was dialed to. The
//     process is found by the socket, so it works for every protocol without help of the nodes.
//  2. Bytes from a to b obey the rule from a to b, on connections dialed by either. They are delayed,
//     never lost or reordered within a connection: TCP handles lost packets like that.
//     A connection that is reset loses the bytes in transit.
//  3. A rule applies as soon as it is set, also to queued bytes.
package link
