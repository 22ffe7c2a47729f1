// Package health decides what is wrong with a cluster: checks of measurements of its members, each
// finding with the next step and the page that explains it. The command doctor and the console show
// its findings; both take the measurements themselves.
//
//  1. It has no clock, file or connection: a result is a function of an Examination.
//  2. What could not be looked at is listed as unchecked, and never passes.
//  3. Every page of a finding exists, with its heading.
package health
