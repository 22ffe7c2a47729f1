// Package pace spreads work in the background over time, so that clients notice little of it.
package pace
