package kv

import "time"

// DefaultMaxRequestBytes is the default limit of the size of a request, in the services and in the
// replica.
const DefaultMaxRequestBytes = 3 << 19

// RequestTimeout returns how long a request may take. The time covers the election of a new leader.
func RequestTimeout(electionTimeout time.Duration) time.Duration {
	return 5*time.Second + 2*electionTimeout
}
