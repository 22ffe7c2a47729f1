package client_test

import (
	"testing"

	"vigil/client"
	"vigil/internal/onemember"
)

// endpoint is where a member serves, for the examples and for what needs no other kind of server.
var endpoint string

func TestMain(m *testing.M) { onemember.Run(m, &endpoint) }

func connect(t *testing.T, change ...func(*client.Config)) *client.Client {
	t.Helper()
	cfg := client.Config{Endpoints: []string{endpoint}}
	for _, f := range change {
		f(&cfg)
	}
	c, err := client.Connect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.In(t.Name() + "/")
}
