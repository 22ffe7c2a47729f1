package mirror_test

import (
	"testing"

	"vigil/client"
	"vigil/internal/onemember"
)

// endpoint is where a member serves.
var endpoint string

func TestMain(m *testing.M) { onemember.Run(m, &endpoint) }

// connect returns a client whose keys are those of the test.
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
	return c.In(t.Name() + "/")
}
