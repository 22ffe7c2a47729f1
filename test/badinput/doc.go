// Package badinput gives the server invalid input: command lines and data directories it
// cannot start with, and bytes on its port that are no request. It holds only tests.
package badinput
