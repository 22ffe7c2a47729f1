package archtest

import (
	"bytes"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// grpcVocabulary are the packages of grpc-go that services may import: errors, metadata and the health service. They
// are independent of the transport.
var grpcVocabulary = []string{"codes", "status", "metadata", "health", "health/grpc_health_v1"}

// reflectionFile is the only file of internal/edge/rpc that may import grpc-go itself: its service of reflection needs
// the types of generated code.
const reflectionFile = "internal/edge/rpc/transport/reflection.go"

// TestTransport keeps the services independent of the transport, and the server of grpc-go out of the product.
func TestTransport(t *testing.T) {
	const root = "../.."
	seen := false
	for _, dir := range []string{"internal/edge/rpc", "internal/edge/rpc/wire", "internal/edge/rpc/lockpb", "internal/edge/rpc/locks", "internal/edge/rpc/transport", "internal/edge/rpc/validate", "internal/edge/rpc/apierror"} {
		files, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := path.Join(dir, f.Name())
			if f.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				continue
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
					t.Errorf("%s imports %s: only package %s may", name, imp, path.Dir(reflectionFile))
				}
			}
		}
	}
	if !seen {
		t.Errorf("%s does not import %s: the test looks at the wrong file", reflectionFile, grpcLib)
	}
}
