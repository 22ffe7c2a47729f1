package mirror_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"vigil/client"
	"vigil/client/internal/serverprocess"
)

// endpoint is the address of a member.
var endpoint string

func TestMain(m *testing.M) { serverprocess.Run(m, &endpoint) }

// connect returns a client with the keys of the test.
func connect(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), client.Config{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.In(fmt.Sprintf("%s/%d/", t.Name(), run.Add(1)))
}

// run numbers the clients, so that a repeated test finds no keys of its former run.
var run atomic.Int64
