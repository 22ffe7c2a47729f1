// Package link is the network between the members of a cluster under test: TCP proxies on loopback,
// one in front of each node, whose behaviour is set for each pair of nodes and each direction.
//
//  1. A connection belongs to the node whose process dialed it and the node it was dialed to. The
//     process is found by the socket, so nodes need no help for it, whatever they speak.
//  2. Bytes from a to b obey the rule from a to b, on connections dialed by either. They are delayed,
//     never lost or reordered within a connection: that is what TCP makes of packets that are lost.
//     A connection that is reset loses what was under way.
//  3. A rule holds from the moment it is set, also for bytes that wait.
package link
