// Package console serves the web interface of a member under /console/: pages, which are embedded,
// and the API that they call. DESIGN.md has the reasons.
//
// It is a client of the member's services through Config.Conn and has no rights of its own: each
// call has the credentials of the request.
//
//  1. A request to the API is rejected unless it has the header of the console and comes from a
//     page of the same origin.
//  2. No response can be read by, framed by or executed in a page of another origin.
//  3. Bodies, pages of lists, shown values and searches are bounded, and so is the number of
//     streams of all readers together and of each user.
//  4. Nothing is measured, and no goroutine runs, without a reader, except for sampleLinger after
//     the last one.
//  5. A write names the revision that its reader has seen, and fails if the key has changed since.
//  6. No request waits for a leader while there is none, and a response with data of this member
//     alone says so.
//  7. A stream sends a line at least every beatInterval.
package console
