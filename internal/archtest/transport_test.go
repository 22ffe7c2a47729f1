package archtest

import (
	"bytes"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// grpcVocabulary are the packages of grpc-go that services may import: errors, metadata and the
// health service. They are independent of the transport.
var grpcVocabulary = []string{"codes", "status", "metadata", "health", "health/grpc_health_v1"}

// reflectionFile is the only file of internal/edge/rpc that may import grpc-go itself: its service
// of reflection needs the types of generated code.
const reflectionFile = "internal/edge/rpc/transport/reflection.go"

// TestTransport keeps the services independent of the transport, and the server of grpc-go out of
// the product.
func TestTransport(t *testing.T) {
	const root = "../.."
	seen := false
	err := filepath.WalkDir(filepath.Join(root, "internal/edge/rpc"),
		func(abs string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(abs, ".go") ||
				strings.HasSuffix(abs, "_test.go") {
				return err
			}
			rel, err := filepath.Rel(root, abs)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(rel)
			if strings.HasPrefix(name, path.Dir(reflectionFile)+"/") &&
				path.Dir(name) != path.Dir(reflectionFile) {
				return nil // the parts of the transport
			}
			text, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte("grpc.NewServer(")) {
				t.Errorf("%s makes a server of grpc-go, which is for tests only", name)
			}
			parsed, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range parsed.Imports {
				imp, _ := strconv.Unquote(spec.Path.Value)
				sub, ok := strings.CutPrefix(imp, grpcLib)
				sub = strings.TrimPrefix(sub, "/")
				switch {
				case !ok, slices.Contains(grpcVocabulary, sub):
				case name == reflectionFile:
					seen = seen || sub == ""
				case sub == "":
					t.Errorf("%s imports %s: only %s may", name, imp, reflectionFile)
				case path.Dir(name) != path.Dir(reflectionFile):
					t.Errorf("%s imports %s: only package %s may", name, imp,
						path.Dir(reflectionFile))
				}
			}
			return nil
		})
	if err != nil {
		t.Fatal(err)
	}
	if !seen {
		t.Errorf("%s does not import %s: the test looks at the wrong file", reflectionFile, grpcLib)
	}
}
