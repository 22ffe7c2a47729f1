package lockpb

import (
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestMessages: fields by name, with messages of generated types in dynamic ones, there and back.
func TestMessages(t *testing.T) {
	out := dynamicpb.NewMessage(Election.Methods().ByName("Campaign").Output())
	if _, ok := Message(out, "leader"); ok {
		t.Error("a leader that was not set")
	}
	Set(out, "header", &etcdserverpb.ResponseHeader{Revision: 9})
	leader := New(out, "leader")
	Set(leader, "key", []byte("k"))
	Set(leader, "lease", int64(-1))
	Set(out, "leader", leader)
	b, err := proto.Marshal(out)
	if err != nil {
		t.Fatal(err)
	}
	back := dynamicpb.NewMessage(out.Descriptor())
	if err := proto.Unmarshal(b, back); err != nil {
		t.Fatal(err)
	}
	head, _ := Message(back, "header")
	got, ok := Message(back, "leader")
	if !ok || string(Bytes(got, "key")) != "k" || Int(got, "lease") != -1 || Int(got, "rev") != 0 ||
		Int(head, "revision") != 9 {
		t.Errorf("%v", back)
	}
}

// TestFiles: a client that gets a file can follow its imports, and the registry of the process has
// none of them.
func TestFiles(t *testing.T) {
	seen := map[string]bool{}
	var follow func(f protoreflect.FileDescriptor)
	follow = func(f protoreflect.FileDescriptor) {
		if f.IsPlaceholder() {
			t.Errorf("%s cannot be found", f.Path())
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			follow(f.Imports().Get(i).FileDescriptor)
		}
	}
	for _, name := range []protoreflect.FullName{Lock.FullName(), Election.FullName(),
		"etcdserverpb.KV"} {
		d, err := Files.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		follow(d.ParentFile())
		if f, err := Files.FindFileByPath(d.ParentFile().Path()); err != nil ||
			f != d.ParentFile() {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
	for _, path := range []string{"v3lock.proto", "v3election.proto", rpcPath, kvPath,
		authPath, versionPath} {
		if !seen[path] {
			t.Errorf("%s is not among %v", path, seen)
		}
		if _, err := protoregistry.GlobalFiles.FindFileByPath(path); err == nil {
			t.Errorf("%s is in the registry of the process", path)
		}
	}
}
