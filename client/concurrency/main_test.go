package concurrency_test

import (
	"testing"

	"vigil/client/internal/serverprocess"
)

// endpoint is the address of a member.
var endpoint string

func TestMain(m *testing.M) { serverprocess.Run(m, &endpoint) }
