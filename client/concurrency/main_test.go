package concurrency_test

import (
	"testing"

	"vigil/internal/onemember"
)

// endpoint is where a member serves.
var endpoint string

func TestMain(m *testing.M) { onemember.Run(m, &endpoint) }
