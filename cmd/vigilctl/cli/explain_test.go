package cli

import (
	"errors"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/exit"
)

// TestNoSpaceReason: etcd has one error for a full disk and a used quota; members say which it is.
func TestNoSpaceReason(t *testing.T) {
	for _, c := range []struct {
		status *etcdserverpb.StatusResponse
		want   string
	}{
		{&etcdserverpb.StatusResponse{Errors: []string{"vigil: the disk is full: puts are rejected until it has free space"}, DbSizeQuota: 9}, "the disk is full: puts are rejected until it has free space. Free space"},
		{&etcdserverpb.StatusResponse{Errors: []string{"memberID:1 alarm:NOSPACE "},
			DbSizeQuota: 9}, "the quota of 9 bytes is used up"},
		{&etcdserverpb.StatusResponse{Errors: []string{"memberID:1 alarm:CORRUPT "},
			DbSizeQuota: 9}, ""},
		{&etcdserverpb.StatusResponse{}, ""},
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
