package concurrency_test

import (
	"testing"

	"vigil/client/internal/servertest"
)

// endpoint is where a member serves.
var endpoint string

func TestMain(m *testing.M) { servertest.Run(m, &endpoint) }
