package pages

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// quotes is the page whose lists begin with quoted texts.
const quotes = "docs/operations/troubleshooting.md"

// TestQuotedTexts: each text that the page quotes is one that the programs write, or an error of
// etcd's API.
func TestQuotedTexts(t *testing.T) {
	texts := literals(t)
	first := regexp.MustCompile("^- `([^`]+)`: ")
	n := 0
	for _, line := range prose(t, quotes) {
		m := first.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		n++
		for _, part := range strings.Split(m[1], "...") {
			if !slices.ContainsFunc(texts,
				func(s string) bool { return strings.Contains(s, strings.TrimSpace(part)) }) {
				t.Errorf("%s: no program writes %q", quotes, part)
			}
		}
	}
	if n < 50 {
		t.Errorf("only %d texts", n)
	}
}

// literals returns the strings in the code of the programs, joined where the code joins them, and
// etcd's errors.
func literals(t *testing.T) (out []string) {
	t.Helper()
	for _, err := range []error{
		rpctypes.ErrGRPCNoLeader, rpctypes.ErrGRPCTimeout, rpctypes.ErrGRPCTimeoutDueToLeaderFail,
		rpctypes.ErrGRPCTimeoutDueToConnectionLost,
		rpctypes.ErrGRPCLeaderChanged, rpctypes.ErrGRPCNotLeader, rpctypes.ErrGRPCStopped,
		rpctypes.ErrGRPCNoSpace,
		rpctypes.ErrGRPCRequestTooManyRequests, rpctypes.ErrGRPCRequestTooLarge,
		rpctypes.ErrGRPCTooManyOps, rpctypes.ErrGRPCDuplicateKey,
		rpctypes.ErrGRPCCompacted, rpctypes.ErrGRPCFutureRev, rpctypes.ErrGRPCLeaseNotFound,
		rpctypes.ErrGRPCCorrupt,
		rpctypes.ErrGRPCUnhealthy, rpctypes.ErrGRPCMemberNotEnoughStarted,
		rpctypes.ErrGRPCLearnerNotReady, rpctypes.ErrGRPCTooManyLearners,
		rpctypes.ErrGRPCPeerURLExist, rpctypes.ErrGRPCMemberNotFound,
		rpctypes.ErrGRPCNotSupportedForLearner, rpctypes.ErrGRPCUserEmpty,
		rpctypes.ErrGRPCAuthFailed, rpctypes.ErrGRPCInvalidAuthToken,
		rpctypes.ErrGRPCPermissionDenied,
		rpctypes.ErrGRPCAuthOldRevision, rpctypes.ErrGRPCRootRoleNotExist,
	} {
		out = append(out, rpctypes.ErrorDesc(err))
	}
	for _, dir := range []string{"internal", "server", "cmd", "client"} {
		err := filepath.WalkDir(filepath.Join(root, dir),
			func(path string, d fs.DirEntry, err error) error {
				if err != nil || filepath.Ext(path) != ".go" ||
					strings.HasSuffix(path, "_test.go") {
					return err
				}
				file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
				if err != nil {
					return err
				}
				ast.Inspect(file, func(n ast.Node) bool {
					if e, ok := n.(ast.Expr); ok {
						if s, err := joined(e); err == nil {
							out = append(out, s)
							return false
						}
					}
					return true
				})
				return nil
			})
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(out) < 5000 {
		t.Fatalf("only %d strings were found in the code", len(out))
	}
	return out
}

var errNoText = errors.New("no text")

// joined returns the value of a string, or of strings that + joins.
func joined(e ast.Expr) (string, error) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if e.Kind == token.STRING {
			return strconv.Unquote(e.Value)
		}
	case *ast.BinaryExpr:
		if x, err := joined(e.X); err == nil && e.Op == token.ADD {
			y, err := joined(e.Y)
			return x + y, err
		}
	}
	return "", errNoText
}
