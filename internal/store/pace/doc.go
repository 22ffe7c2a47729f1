// Package pace spreads background work over time, so that clients notice little of it.
package pace
