// Package client runs the stock Go client against the server under test. It holds only tests.
package client
