package cli

import (
	"errors"
	"strings"
	"testing"

	"vigil/client"
	"vigil/cmd/vigilctl/exit"
)

// TestNoSpaceReason: etcd has one error for a full disk and a used quota; members say which it is.
func TestNoSpaceReason(t *testing.T) {
	for _, c := range []struct {
		status *client.Status
		want   string
	}{
		{&client.Status{Errors: []string{"vigil: the disk is full: puts are rejected until it has free space"}, DBSizeQuota: 9}, "the disk is full: puts are rejected until it has free space. Free space"},
		{&client.Status{Errors: []string{"memberID:1 alarm:NOSPACE "}, DBSizeQuota: 9},
			"the quota of 9 bytes is used up"},
		{&client.Status{Errors: []string{"memberID:1 alarm:CORRUPT "}, DBSizeQuota: 9}, ""},
		{&client.Status{}, ""},
	} {
		if got := noSpaceReason(c.status); !strings.HasPrefix(got, c.want) ||
			c.want == "" && got != "" {
			t.Errorf("%v: %q", c.status, got)
		}
	}
}

// TestAdvice: an error of the client comes with the flags that help, once, and keeps its exit code.
func TestAdvice(t *testing.T) {
	err := CallError(errors.New("no member can be reached; a:1: the authority of the member's certificate is not known"))
	const want = "no member can be reached; a:1: the authority of the member's certificate is not known: give --cacert"
	if err.Error() != want || exit.Code(err) != exit.Failure {
		t.Errorf("%d %v", exit.Code(err), err)
	}
	if again := CallError(err); again.Error() != want {
		t.Error(again)
	}
}
