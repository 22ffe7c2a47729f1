package diff

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Field is one field in which two answers differ.
type Field struct {
	// Path leads to the field, such as responses[1].response_put.header.revision.
	Path string
	// Want is the stock server's value, Got the subject's.
	Want, Got string
}

// ids are what a server calls itself and its cluster.
type ids struct{ cluster, member uint64 }

const (
	own     = "own"
	nonzero = "nonzero"
)

// simpleToken is random, and has a position of the raft log.
var simpleToken = regexp.MustCompile(`^[a-zA-Z]{16}\.\d+$`)

// norm returns a scalar as text, with what may differ between two servers replaced by a mark.
func (i ids) norm(fd protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch fd.FullName() {
	case "etcdserverpb.ResponseHeader.cluster_id":
		if v.Uint() == i.cluster {
			return own
		}
	case "etcdserverpb.ResponseHeader.member_id", "etcdserverpb.StatusResponse.leader",
		"etcdserverpb.Member.ID":
		if v.Uint() == i.member {
			return own
		}
	case "etcdserverpb.ResponseHeader.raft_term", "etcdserverpb.StatusResponse.raftTerm",
		"etcdserverpb.StatusResponse.raftIndex", "etcdserverpb.StatusResponse.raftAppliedIndex",
		"etcdserverpb.StatusResponse.dbSize", "etcdserverpb.StatusResponse.dbSizeInUse":
		if v.String() != "0" {
			return nonzero
		}
	}
	if fd.FullName() == "etcdserverpb.AuthenticateResponse.token" &&
		simpleToken.MatchString(v.String()) {
		return "a token"
	}
	switch fd.Kind() {
	case protoreflect.BytesKind:
		return quote(v.Bytes())
	case protoreflect.StringKind:
		return strconv.Quote(v.String())
	case protoreflect.EnumKind:
		if d := fd.Enum().Values().ByNumber(v.Enum()); d != nil {
			return string(d.Name())
		}
	}
	return v.String()
}

func quote(b []byte) string {
	if len(b) > 80 {
		return fmt.Sprintf("%q...(%d bytes)", b[:80], len(b))
	}
	return strconv.Quote(string(b))
}

// compare returns the fields in which an answer of the subject differs from the stock server's.
func compare(want Outcome, wantIDs ids, got Outcome, gotIDs ids) []Field {
	var out []Field
	if want.Status.Code() != got.Status.Code() {
		out = append(out, Field{"code", want.Status.Code().String(), got.Status.Code().String()})
	}
	if w, g := message(want), message(got); w != g {
		out = append(out, Field{"message", w, g})
	}
	if w, g := len(want.Status.Proto().GetDetails()), len(got.Status.Proto().GetDetails()); w != g {
		out = append(out, Field{"details", strconv.Itoa(w), strconv.Itoa(g)})
	}
	if want.Resp == nil || got.Resp == nil {
		return out
	}
	return compareMessages(out, "", want.Resp, wantIDs, got.Resp, gotIDs)
}

func compareMessages(out []Field, path string, want proto.Message, wantIDs ids, got proto.Message,
	gotIDs ids) []Field {
	c := comparer{wantIDs: wantIDs, gotIDs: gotIDs, out: out}
	alike(want, got)
	c.messages(path, want.ProtoReflect(), got.ProtoReflect())
	return c.out
}

// message is an error's text. The protobuf library writes a space of either kind into its errors,
// on purpose, so that no program relies on them.
func message(o Outcome) string {
	return strings.ReplaceAll(o.Status.Message(), "\u00a0", " ")
}

type comparer struct {
	wantIDs, gotIDs ids
	out             []Field
}

func (c *comparer) add(path, want, got string) {
	if want != got {
		c.out = append(c.out, Field{strings.TrimPrefix(path, "."), want, got})
	}
}

func (c *comparer) messages(path string, want, got protoreflect.Message) {
	fields := want.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		at := path + "." + string(fd.Name())
		if w, g := want.Has(fd), got.Has(fd); fd.HasPresence() && (!w || !g) {
			c.add(at, presence(want, fd), presence(got, fd))
			continue
		}
		if !fd.IsList() {
			c.values(at, fd, want.Get(fd), got.Get(fd))
			continue
		}
		wl, gl := want.Get(fd).List(), got.Get(fd).List()
		c.add(at+".len", strconv.Itoa(wl.Len()), strconv.Itoa(gl.Len()))
		for j := range min(wl.Len(), gl.Len()) {
			c.values(fmt.Sprintf("%s[%d]", at, j), fd, wl.Get(j), gl.Get(j))
		}
	}
	if w, g := want.GetUnknown(), got.GetUnknown(); !bytes.Equal(w, g) {
		c.add(path+".unknown", quote(w), quote(g))
	}
}

func (c *comparer) values(path string, fd protoreflect.FieldDescriptor, want,
	got protoreflect.Value) {
	switch {
	case fd.Message() != nil:
		c.messages(path, want.Message(), got.Message())
	case fd.Kind() == protoreflect.BytesKind && bytes.Equal(want.Bytes(), got.Bytes()):
	default:
		w, g := c.wantIDs.norm(fd, want), c.gotIDs.norm(fd, got)
		if fd.Kind() == protoreflect.BytesKind && w == g {
			g += " differing further on"
		}
		c.add(path, w, g)
	}
}

func presence(m protoreflect.Message, fd protoreflect.FieldDescriptor) string {
	if !m.Has(fd) {
		return "unset"
	}
	if fd.Message() == nil {
		return m.Get(fd).String()
	}
	return fmt.Sprintf("{%v}", m.Get(fd).Message().Interface())
}
