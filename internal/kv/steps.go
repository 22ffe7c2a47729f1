package kv

import "time"

// Step is one stage of a request and its duration.
type Step struct {
	Name string
	Took time.Duration
}

// Steps are the stages of a request, in order. A member that takes long for a request sets the
// request's Steps before it returns, even if the request failed. It does not read them, and they
// are not part of the API.
type Steps []Step
