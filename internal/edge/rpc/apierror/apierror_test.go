package apierror

import (
	"errors"
	"fmt"
	"testing"

	"google.golang.org/grpc/status"
)

// TestStatus: an error has the status of its first row, also if it is wrapped, so that no row hides
// a later one.
func TestStatus(t *testing.T) {
	for _, row := range table {
		got := Status(fmt.Errorf("put: %w", row.from))
		if s, want := status.Convert(got), status.Convert(row.to); s.Code() != want.Code() ||
			s.Message() != want.Message() {
			t.Errorf("%v has the status %v, want %v", row.from, got, row.to)
		}
	}
	if err := Status(nil); err != nil {
		t.Errorf("no error has the status %v", err)
	}
	if s := status.Convert(Status(errors.New("something"))); s.Message() != "something" {
		t.Errorf("an unknown error has the status %v", s)
	}
}
