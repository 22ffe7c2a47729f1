package peer

import (
	"bufio"
	"bytes"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// FuzzHandshake: a hello or a reply that is read is one that encodes to the same, and nothing makes
// the decoder fail otherwise than by an error.
func FuzzHandshake(f *testing.F) {
	h := hello{minProtocol: 1, maxProtocol: 1, kind: kindMessages, cluster: 1, from: 2, to: 3,
		index: 4, version: "v", urls: []string{"http://h:1", "unix:///x"}}
	f.Add(h.encode())
	f.Add((&reply{protocol: 1, cluster: 1, member: 2, version: "v"}).encode())
	f.Add((&reply{code: CodeRemoved, cluster: 1, member: 2, text: "gone"}).encode())
	f.Add([]byte(magic))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := readSealed(bytes.NewReader(b))
		if err != nil {
			body = b // the fields on their own
		}
		if h, err := decodeHello(body); err == nil && h.kind != 0 {
			body, err := readSealed(bytes.NewReader(h.encode()))
			if err != nil {
				t.Fatal(err)
			}
			if again, err := decodeHello(body); err != nil || !reflect.DeepEqual(again, h) {
				t.Fatalf("%+v became %+v, %v", h, again, err)
			}
		}
		if r, err := decodeReply(body); err == nil {
			body, err := readSealed(bytes.NewReader(r.encode()))
			if err != nil {
				t.Fatal(err)
			}
			if again, err := decodeReply(body); err != nil || !reflect.DeepEqual(again, r) {
				t.Fatalf("%+v became %+v, %v", r, again, err)
			}
		}
	})
}

// FuzzFrames: whatever arrives, in whatever pieces, every payload is bounded, and what was read is
// what another way of cutting the input gives.
func FuzzFrames(f *testing.F) {
	var b []byte
	b = appendFrame(b, framePing, 0, []byte("12345678"))
	b = appendFrame(b, frameLog, flagMore, []byte("one "))
	b = appendFrame(b, frameControl, 0, []byte("between"))
	b = appendFrame(b, frameLog, 0, []byte("two"))
	b = appendFrame(b, frameClose, 0, encodeReason(refuse(CodeBusy, "later")))
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Add(appendFrame(nil, frameRequest, 0,
		(&request{id: 1, kind: 2, millis: 3, payload: []byte("x")}).encode()))
	f.Add(appendFrame(nil, frameResponse, 0,
		(&response{id: 1, err: refuse(CodeFailed, "no")}).encode()))
	f.Add(appendFrame(nil, frameEnd, 0, appendTrailer(nil, 5, 6)))
	f.Fuzz(func(t *testing.T, b []byte) {
		const limit = 1000
		type frame struct {
			t       frameType
			payload string
		}
		all := func(r io.Reader) (out []frame, last error) {
			in := frames{r: bufio.NewReaderSize(r, maxFrame+frameHeader), limit: limit}
			for {
				in.ready()
				typ, payload, err := in.next()
				if err != nil {
					return out, err
				}
				if len(payload) > max(limit, maxFrame) {
					t.Fatalf("payload of %d bytes", len(payload))
				}
				if len(in.partial) > limit {
					t.Fatalf("%d bytes are kept", len(in.partial))
				}
				out = append(out, frame{typ, string(payload)})
				decodeReason(payload)
				if r, err := decodeRequest(payload); err == nil &&
					len(r.payload) != len(payload)-requestHeader {
					t.Fatal("a call of another length")
				}
				if r, err := decodeResponse(payload); err == nil && r.err != nil &&
					len(r.err.Text) > maxText {
					t.Fatal("a reason without bound")
				}
			}
		}
		whole, err1 := all(bytes.NewReader(b))
		pieces, err2 := all(iotest.OneByteReader(bytes.NewReader(b)))
		if !reflect.DeepEqual(whole, pieces) || err1.Error() != err2.Error() {
			t.Fatalf("%v %v\n%v %v", whole, err1, pieces, err2)
		}
	})
}

// FuzzMessage: a message that is delivered is for this member, of a type that members send, and
// from its sender unless it was passed on.
func FuzzMessage(f *testing.F) {
	for _, m := range []*raftpb.Message{app(1, 2, 3, 10), msg(raftpb.MsgHeartbeat, 1, 2, 3),
		msg(raftpb.MsgSnap, 1, 2, 3), msg(raftpb.MsgProp, 7, 2, 3)} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, inLogLane(m.GetType()))
	}
	f.Fuzz(func(t *testing.T, b []byte, log bool) {
		typ := frameControl
		if log {
			typ = frameLog
		}
		m, err := decodeMessage(b, typ, 1, 2)
		if err != nil {
			return
		}
		if m.GetTo() != 2 || !remoteTypes[m.GetType()] || inLogLane(m.GetType()) != log ||
			m.GetFrom() != 1 && !forwarded(m.GetType()) {
			t.Fatalf("%v", m)
		}
		clear(b) // it keeps nothing of the buffer
		out, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeMessage(out, typ, 1, 2); err != nil || !proto.Equal(m, again) {
			t.Fatalf("%v became %v, %v", m, again, err)
		}
	})
}

// FuzzBulk: a transfer that ends with io.EOF is the one that was sent.
func FuzzBulk(f *testing.F) {
	encode := func(data []byte) []byte {
		var b []byte
		if len(data) > 0 {
			b = appendFrame(b, frameData, 0, data[:len(data)/2])
			b = appendFrame(b, frameData, 0, data[len(data)/2:])
		}
		return appendFrame(b, frameEnd, 0, appendTrailer(nil, uint64(len(data)), crc(data)))
	}
	f.Add([]byte("hello, world"), uint16(3), byte(1))
	f.Add([]byte(""), uint16(0), byte(0))
	f.Fuzz(func(t *testing.T, data []byte, at uint16, flip byte) {
		if len(data) > maxFrame {
			return
		}
		b := encode(data)
		b[int(at)%len(b)] ^= flip
		s := &stats{}
		r := bulkReader{l: &link{in: frames{r: bufio.NewReaderSize(bytes.NewReader(b),
			maxFrame+frameHeader), limit: maxFrame}}, bytes: &s.bulkReceivedBytes}
		got, err := io.ReadAll(&r)
		if (err == nil) != (flip == 0) {
			t.Fatalf("altered by %x: %v", flip, err)
		}
		if err == nil && !bytes.Equal(got, data) || !bytes.HasPrefix(data, got) {
			t.Fatal("other bytes than were sent")
		}
	})
}

func crc(b []byte) uint32 {
	h := newCRC()
	h.Write(b)
	return h.Sum32()
}
