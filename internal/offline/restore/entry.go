package restore

import (
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// The raft log of an etcd member has requests of two messages, and an entry does not say which one
// it is. Members up to 3.6 decode it as InternalRaftRequest, and if that fails as Request, the
// message of API version 2. Their decoder fails at a field of another wire type, and every Request
// has one: its field 5 is a number, and field 5 of InternalRaftRequest is a message. The decoder of
// this program skips such fields, and decodes a Request as an empty put. So the wire types are
// compared here before an entry is decoded. etcd does not start with an entry that is neither; it
// is an error here too.

// oldField is the field of InternalRaftRequest that has a Request of API version 2. The message of
// 3.7 does not have it any more.
const oldField protowire.Number = 2

// oldStrings are the fields of Request that are strings. The others are numbers, up to oldLast.
const (
	oldStrings = 1<<2 | 1<<3 | 1<<4 | 1<<6
	oldLast    = 17
)

// maxNesting limits the depth of messages in messages. A transaction in a transaction takes two.
const maxNesting = 1000

var errEntry = errors.New("it is not a request of etcd")

// decodeEntry decodes the data of an entry. The request is nil if it is a request of API version 2:
// members of etcd 3.4 and 3.5 publish their names and the version of the cluster with these, and
// they change no key of version 3.
func decodeEntry(data []byte) (*etcdserverpb.InternalRaftRequest, error) {
	in := &etcdserverpb.InternalRaftRequest{}
	if err := checkFields(in.ProtoReflect().Descriptor(), data, maxNesting); err != nil {
		if checkOld(data) == nil {
			return nil, nil
		}
		return nil, err
	}
	known, old := false, []byte(nil)
	err := eachField(data, func(field protowire.Number, _ protowire.Type, value []byte) error {
		f := in.ProtoReflect().Descriptor().Fields().ByNumber(field)
		known = known || f != nil && f.Kind() == protoreflect.MessageKind && f.Name() != "header"
		if field == oldField {
			old = value
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case old != nil:
		return nil, checkOld(old)
	case !known:
		return nil, fmt.Errorf("%w that this program knows: import the data directory with a newer version", errEntry)
	}
	return in, proto.Unmarshal(data, in)
}

// checkFields returns an error if a field that a message has, at any depth, has another wire type
// than it must have.
func checkFields(m protoreflect.MessageDescriptor, b []byte, depth int) error {
	if depth == 0 {
		return fmt.Errorf("%w: more than %d messages in each other", errEntry, maxNesting)
	}
	return eachField(b, func(field protowire.Number, kind protowire.Type, value []byte) error {
		f := m.Fields().ByNumber(field)
		switch {
		case f == nil && field == oldField && m.Name() == "InternalRaftRequest":
			return wantType(field, kind, protowire.BytesType)
		case f == nil:
			return nil // of a newer version, which etcd passes over
		case f.Kind() == protoreflect.MessageKind:
			if err := wantType(field, kind, protowire.BytesType); err != nil {
				return err
			}
			return checkFields(f.Message(), value, depth-1)
		case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
			return wantType(field, kind, protowire.BytesType)
		case f.IsList() && kind == protowire.BytesType:
			return nil // packed numbers
		}
		// the messages have no numbers of another type
		return wantType(field, kind, protowire.VarintType)
	})
}

// checkOld returns an error unless b is a Request of API version 2: etcd writes its method and its
// field 5 always.
func checkOld(b []byte) error {
	const always = 1<<2 | 1<<5
	seen := 0
	err := eachField(b, func(field protowire.Number, kind protowire.Type, _ []byte) error {
		switch {
		case field > oldLast:
			return nil
		case oldStrings>>field&1 != 0:
			seen |= 1 << field
			return wantType(field, kind, protowire.BytesType)
		}
		seen |= 1 << field
		return wantType(field, kind, protowire.VarintType)
	})
	if err == nil && seen&always != always {
		return fmt.Errorf("%w of version 2 either", errEntry)
	}
	return err
}

func wantType(field protowire.Number, kind, want protowire.Type) error {
	if kind != want {
		return fmt.Errorf("%w: field %d has wire type %d, want %d", errEntry, field, kind, want)
	}
	return nil
}

// eachField calls visit for each field of a message, with its content if that has a length.
func eachField(b []byte,
	visit func(field protowire.Number, kind protowire.Type, value []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errEntry, protowire.ParseError(n))
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(field, kind, b)
		if size < 0 {
			return fmt.Errorf("%w: %w", errEntry, protowire.ParseError(size))
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(b)
		}
		if err := visit(field, kind, value); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
