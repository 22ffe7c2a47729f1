// Package discovery finds the members of a new cluster: through a registry of keys in a cluster
// that already runs, or through SRV records of the DNS. Both give the list in the form of
// --initial-cluster, NAME=URL,...
//
// The registry has the format of etcd's discovery v3, so that members of etcd and of this program
// find each other's lists:
//
//		/_etcd/registry/TOKEN/_config/size       decimal, written by the creator of the token
//		/_etcd/registry/TOKEN/members/MEMBER-ID  NAME=URL,..., written by each member; the id in hexadecimal
//
//	 1. The members of a cluster are those that registered first, by create revision: every member
//	    gets the same list.
//	 2. A member that is registered gets its list again, however many registered after it.
//	 3. Join writes nothing if the cluster is full without this member.
//	 4. Every call to the service has a deadline, and failed calls are repeated; only the wait for other members
//	    lasts until the context ends.
//
// The package does not depend on a member, its data or its configuration.
package discovery
