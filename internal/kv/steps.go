package kv

import "time"

// Step is a part of what was done for a request, and how long it took.
type Step struct {
	Name string
	Took time.Duration
}

// Steps are what was done for a request, in order. A member that takes long over a request sets the
// request's Steps before it returns, also if it failed; nobody looks at them on the way in, and they
// are no part of the API.
type Steps []Step
