// Package badinput gives the server what nobody should: command lines and data directories it
// cannot start with, and bytes on its port that are no request. It holds only tests.
package badinput
