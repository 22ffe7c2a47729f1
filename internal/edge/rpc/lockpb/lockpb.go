// Package lockpb describes the services v3lockpb.Lock and v3electionpb.Election and their messages,
// which are not in go.etcd.io/etcd/api, and the service vigil.Times, which etcd does not have.
//
// The descriptors of Lock and Election equal etcd's, including options, so
// reflection and JSON are equal too. They are not in the registry of the process, because a program
// that embeds a member and links etcd's descriptors would not start. So there are no generated
// types; messages are dynamic, which is fast enough for calls that wait for consensus.
package lockpb

import (
	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Lock and Election are the services. Like the methods of etcdserverpb, theirs have the option
// google.api.http.
var (
	Lock     = lockFile.Services().ByName("Lock")
	Election = electionFile.Services().ByName("Election")
)

var (
	lockFile     = build(lockProto())
	electionFile = build(electionProto())
)

// Bytes, Int and Message read a field of a dynamic message, Set writes one, by the name that it has
// in the API. A name that the message does not have panics.

// Bytes reads a field of bytes.
func Bytes(m protoreflect.Message, field protoreflect.Name) []byte {
	return m.Get(m.Descriptor().Fields().ByName(field)).Bytes()
}

// Int reads a field of an integer type.
func Int(m protoreflect.Message, field protoreflect.Name) int64 {
	return m.Get(m.Descriptor().Fields().ByName(field)).Int()
}

// Message reads a field that is a message; false if it is not set.
func Message(m protoreflect.Message, field protoreflect.Name) (protoreflect.Message, bool) {
	fd := m.Descriptor().Fields().ByName(field)
	return m.Get(fd).Message(), m.Has(fd)
}

// Set sets a field to a value of its type: bytes, an int64, or a message.
func Set(m protoreflect.Message, field protoreflect.Name, value any) {
	fd := m.Descriptor().Fields().ByName(field)
	if v, ok := value.(proto.Message); ok {
		m.Set(fd, protoreflect.ValueOfMessage(v.ProtoReflect()))
		return
	}
	m.Set(fd, protoreflect.ValueOf(value))
}

// New makes an empty message for a field.
func New(m protoreflect.Message, field protoreflect.Name) *dynamicpb.Message {
	return dynamicpb.NewMessage(m.Descriptor().Fields().ByName(field).Message())
}

// build links a file with the generated types that it refers to. It fails only by a mistake in this
// package, which every use would show.
func build(p *descriptorpb.FileDescriptorProto) protoreflect.FileDescriptor {
	f, err := protodesc.NewFile(p, generated{})
	if err != nil {
		panic("lockpb: " + err.Error())
	}
	return f
}

const (
	lockPackage     = "v3lockpb"
	electionPackage = "v3electionpb"
	goPackage       = "go.etcd.io/etcd/server/v3/etcdserver/api/"
	header          = ".etcdserverpb.ResponseHeader"
	keyValue        = ".mvccpb.KeyValue"
	bytes           = "bytes"
	int64s          = "int64"
)

func lockProto() *descriptorpb.FileDescriptorProto {
	m := messages{lockPackage}
	return file("v3lock", lockPackage, []string{rpcPath, annotationsPath},
		[]*descriptorpb.DescriptorProto{
			m.message("LockRequest", "name", bytes, "lease", int64s),
			m.message("LockResponse", "header", header, "key", bytes),
			m.message("UnlockRequest", "key", bytes),
			m.message("UnlockResponse", "header", header),
		},
		service("Lock",
			m.method("Lock", "LockRequest", "LockResponse", "/v3/lock/lock"),
			m.method("Unlock", "UnlockRequest", "UnlockResponse", "/v3/lock/unlock")))
}

func electionProto() *descriptorpb.FileDescriptorProto {
	m := messages{electionPackage}
	leader := "." + electionPackage + ".LeaderKey"
	observe := m.method("Observe", "LeaderRequest", "LeaderResponse", "/v3/election/observe")
	observe.ServerStreaming = proto.Bool(true)
	return file("v3election", electionPackage, []string{rpcPath, kvPath, annotationsPath},
		[]*descriptorpb.DescriptorProto{
			m.message("CampaignRequest", "name", bytes, "lease", int64s, "value", bytes),
			m.message("CampaignResponse", "header", header, "leader", leader),
			m.message("LeaderKey", "name", bytes, "key", bytes, "rev", int64s, "lease", int64s),
			m.message("LeaderRequest", "name", bytes),
			m.message("LeaderResponse", "header", header, "kv", keyValue),
			m.message("ResignRequest", "leader", leader),
			m.message("ResignResponse", "header", header),
			m.message("ProclaimRequest", "leader", leader, "value", bytes),
			m.message("ProclaimResponse", "header", header),
		},
		service("Election",
			m.method("Campaign", "CampaignRequest", "CampaignResponse", "/v3/election/campaign"),
			m.method("Proclaim", "ProclaimRequest", "ProclaimResponse", "/v3/election/proclaim"),
			m.method("Leader", "LeaderRequest", "LeaderResponse", "/v3/election/leader"),
			observe,
			m.method("Resign", "ResignRequest", "ResignResponse", "/v3/election/resign")))
}

// file is etcd's api/NAME/NAMEpb/NAME.proto.
func file(name, pkg string, imports []string, messages []*descriptorpb.DescriptorProto,
	s *descriptorpb.ServiceDescriptorProto) *descriptorpb.FileDescriptorProto {
	return &descriptorpb.FileDescriptorProto{
		Name:        proto.String(name + ".proto"),
		Package:     proto.String(pkg),
		Dependency:  imports,
		MessageType: messages,
		Service:     []*descriptorpb.ServiceDescriptorProto{s},
		Options: &descriptorpb.FileOptions{GoPackage: proto.String(goPackage +
			name + "/" + pkg)},
		Syntax: proto.String("proto3"),
	}
}

func service(name string,
	methods ...*descriptorpb.MethodDescriptorProto) *descriptorpb.ServiceDescriptorProto {
	return &descriptorpb.ServiceDescriptorProto{Name: proto.String(name), Method: methods}
}

// messages describes the messages of one package.
type messages struct{ pkg string }

// message takes pairs of a name and a type: a scalar, or a dot and the full name of a message.
// Fields are numbered from 1.
func (messages) message(name string, fields ...string) *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: proto.String(name)}
	for i := 0; i < len(fields); i += 2 {
		f := &descriptorpb.FieldDescriptorProto{
			Name:     proto.String(fields[i]),
			JsonName: proto.String(fields[i]),
			Number:   proto.Int32(int32(i/2 + 1)),
			Label:    descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
		}
		switch fields[i+1] {
		case bytes:
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		case int64s:
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum()
		default:
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
			f.TypeName = proto.String(fields[i+1])
		}
		m.Field = append(m.Field, f)
	}
	return m
}

// method is a unary one that is posted to path in JSON.
func (m messages) method(name, in, out, path string) *descriptorpb.MethodDescriptorProto {
	o := &descriptorpb.MethodOptions{}
	proto.SetExtension(o, annotations.E_Http, &annotations.HttpRule{
		Pattern: &annotations.HttpRule_Post{Post: path},
		Body:    "*",
	})
	return &descriptorpb.MethodDescriptorProto{
		Name:       proto.String(name),
		InputType:  proto.String("." + m.pkg + "." + in),
		OutputType: proto.String("." + m.pkg + "." + out),
		Options:    o,
	}
}
