package lockpb

import (
	"sync"

	"go.etcd.io/etcd/api/v3/authpb"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/versionpb"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// The files of etcd's API import each other by these paths, but are registered under paths without
// the folders. So the imports of registered files cannot be resolved in the registry.
const (
	rpcPath         = "etcd/api/etcdserverpb/rpc.proto"
	kvPath          = "etcd/api/mvccpb/kv.proto"
	authPath        = "etcd/api/authpb/auth.proto"
	versionPath     = "etcd/api/versionpb/version.proto"
	annotationsPath = "google/api/annotations.proto"
)

// api lists the files of the API, each after its imports.
var api = []struct {
	path string
	file protoreflect.FileDescriptor
}{
	{versionPath, versionpb.File_version_proto},
	{kvPath, mvccpb.File_kv_proto},
	{authPath, authpb.File_auth_proto},
	{rpcPath, etcdserverpb.File_rpc_proto},
}

// generated finds the descriptors of generated types by their import paths.
type generated struct{}

// FindFileByPath implements protodesc.Resolver.
func (generated) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	for _, f := range api {
		if f.path == path {
			return f.file, nil
		}
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (generated) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// Files finds the descriptors of the whole API by their import paths, then those that are
// registered in the process. It is for reflection: they are not the descriptors of messages.
var Files protodesc.Resolver = files{}

type files struct{}

var published = sync.OnceValue(func() *protoregistry.Files {
	out := &protoregistry.Files{}
	add := func(p *descriptorpb.FileDescriptorProto) {
		f, err := protodesc.NewFile(p, linked{out})
		if err == nil {
			err = out.RegisterFile(f)
		}
		if err != nil {
			panic("lockpb: " + err.Error())
		}
	}
	for _, f := range api {
		p := protodesc.ToFileDescriptorProto(f.file)
		p.Name = proto.String(f.path)
		add(p)
	}
	add(lockProto())
	add(electionProto())
	add(timesProto())
	return out
})

// FindFileByPath implements protodesc.Resolver.
func (files) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	return linked{published()}.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (files) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	return linked{published()}.FindDescriptorByName(name)
}

// linked searches some files before the registry.
type linked struct{ first *protoregistry.Files }

// FindFileByPath implements protodesc.Resolver.
func (l linked) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if f, err := l.first.FindFileByPath(path); err == nil {
		return f, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

// FindDescriptorByName implements protodesc.Resolver.
func (l linked) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := l.first.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}
