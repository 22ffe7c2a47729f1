package kv

import "time"

// Step is one stage of a request and its duration.
type Step struct {
	Name string
	Took time.Duration
}

// Steps are the stages of a request, in order. A member that is slow with a request sets the request's Steps before it
// returns, also if the request failed. They are not read on the way in and are not part of the API.
type Steps []Step
