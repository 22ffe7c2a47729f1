package lockpb

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Times is the service vigil.Times, which etcd does not have: it knows when revisions were made.
// All times are in milliseconds since 1970.
var Times = timesFile.Services().ByName("Times")

var timesFile = build(timesProto())

const timesPackage = "vigil"

// timesProto is
//
//	service Times {
//	  // RevisionAt returns the newest revision that is known to be made at or before a time.
//	  rpc RevisionAt(RevisionAtRequest) returns (RevisionAtResponse);
//	  // Spans returns when revisions were made, in the order of the request.
//	  rpc Spans(SpansRequest) returns (SpansResponse);
//	}
//	message RevisionAtRequest { int64 time = 1; bool serializable = 2; }
//	message RevisionAtResponse { int64 revision = 1; }
//	message SpansRequest { repeated int64 revisions = 1; }
//	// The revision was made after the time after, 0 for unknown, and at or before the time at, 0 for not known yet.
//	message Span { int64 after = 1; int64 at = 2; }
//	message SpansResponse { repeated Span spans = 1; }
func timesProto() *descriptorpb.FileDescriptorProto {
	m := messages{timesPackage}
	at := m.message("RevisionAtRequest", "time", int64s, "serializable", int64s)
	at.Field[1].Type = descriptorpb.FieldDescriptorProto_TYPE_BOOL.Enum()
	revisions := m.message("SpansRequest", "revisions", int64s)
	spans := m.message("SpansResponse", "spans", "."+timesPackage+".Span")
	for _, f := range []*descriptorpb.FieldDescriptorProto{revisions.Field[0], spans.Field[0]} {
		f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
	}
	method := func(name string) *descriptorpb.MethodDescriptorProto {
		return &descriptorpb.MethodDescriptorProto{Name: proto.String(name),
			InputType:  proto.String("." + timesPackage + "." + name + "Request"),
			OutputType: proto.String("." + timesPackage + "." + name + "Response")}
	}
	return &descriptorpb.FileDescriptorProto{
		Name:    proto.String("vigil/times.proto"),
		Package: proto.String(timesPackage),
		MessageType: []*descriptorpb.DescriptorProto{
			at, m.message("RevisionAtResponse", "revision", int64s), revisions,
			m.message("Span", "after", int64s, "at", int64s), spans,
		},
		Service: []*descriptorpb.ServiceDescriptorProto{service("Times", method("RevisionAt"),
			method("Spans"))},
		Syntax: proto.String("proto3"),
	}
}

// Bool reads a field that is a bool.
func Bool(m protoreflect.Message, field protoreflect.Name) bool {
	return m.Get(m.Descriptor().Fields().ByName(field)).Bool()
}

// Ints reads a list of integers.
func Ints(m protoreflect.Message, field protoreflect.Name) []int64 {
	list := m.Get(m.Descriptor().Fields().ByName(field)).List()
	out := make([]int64, list.Len())
	for i := range out {
		out[i] = list.Get(i).Int()
	}
	return out
}

// Append appends an empty message to a list, and returns it.
func Append(m protoreflect.Message, field protoreflect.Name) protoreflect.Message {
	return m.Mutable(m.Descriptor().Fields().ByName(field)).List().AppendMutable().Message()
}
