package interop

import (
	"context"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// nodeDir is where the client of Node is: make node-client installs it.
const nodeDir = "../node"

// TestNode runs the cases with @grpc/grpc-js, the client of Node, which shares no code with
// grpc-go's client. Without Node, or without the client, the test is skipped.
func TestNode(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not installed")
	}
	if _, err := os.Stat(filepath.Join(nodeDir, "node_modules")); err != nil {
		t.Skip("the client is not installed: npm ci in " + nodeDir + " does that")
	}
	types := filepath.Join(t.TempDir(), "types")
	b, err := proto.Marshal(descriptors(testgrpc.File_grpc_testing_test_proto))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(types, b, 0o600); err != nil {
		t.Fatal(err)
	}
	withAndWithoutTLS(t, func(t *testing.T, s server) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		// the client keeps a connection for a while
		cmd := exec.CommandContext(ctx, node, "--test", "--test-force-exit", "interop.test.js")
		cmd.Dir = nodeDir
		cmd.Env = append(os.Environ(), "ADDR="+s.addr, "TYPES="+types, "NAME="+certified)
		if s.ca != nil {
			ca := filepath.Join(t.TempDir(), "ca.pem")
			if err := os.WriteFile(ca,
				pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.ca.Raw}),
				0o600); err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(cmd.Env, "CA="+ca)
		}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Error(err)
		}
		t.Logf("%s", out)
	})
}

// descriptors returns a file with all those that it imports, in the order of their use.
func descriptors(file protoreflect.FileDescriptor) *descriptorpb.FileDescriptorSet {
	out, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i))
		}
		out.File = append(out.File, protodesc.ToFileDescriptorProto(f))
	}
	add(file)
	return out
}
