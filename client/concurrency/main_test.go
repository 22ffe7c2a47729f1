package concurrency_test

import (
	"testing"

	"vigil/client/internal/servertest"
)

// endpoint is the address of a member.
var endpoint string

func TestMain(m *testing.M) { servertest.Run(m, &endpoint) }
