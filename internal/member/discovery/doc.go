// Package discovery finds the members of a cluster that is about to be made: through a registry of keys
// in a cluster that runs already, or through SRV records of the DNS. Both give the list in the form of
// --initial-cluster, NAME=URL,...
//
// The registry is etcd's third one, so that members of either kind find each other's lists:
//
//		/_etcd/registry/TOKEN/_config/size       decimal, written by the creator of the token
//		/_etcd/registry/TOKEN/members/MEMBER-ID  NAME=URL,..., written by each member; the id in hexadecimal
//
//	 1. The members of a cluster are those that registered first, by create revision: every member
//	    that gets a list gets the same one.
//	 2. A member that is registered gets its list again, however many came after it.
//	 3. Join writes nothing if the cluster is full without this member.
//	 4. Every call to the service has a deadline, and what it cannot answer is asked again; only the wait for other members
//	    has no end but that of the context.
//
// Nothing here knows a member, its data or its configuration.
package discovery
