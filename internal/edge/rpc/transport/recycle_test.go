package transport

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// word is a message that refers to the memory of its encoding.
type word struct{ b []byte }

func (w *word) Decode(b []byte) error    { w.b = b; return nil }
func (w *word) Size() int                { return len(w.b) }
func (w *word) AppendTo(b []byte) []byte { return append(b, w.b...) }
func newWord() any                       { return new(word) }
func wordOf(id uint64) []byte {
	return bytes.Repeat(binary.BigEndian.AppendUint64(nil, id), 1+int(id%50))
}
func sameWord(r any, ctx context.Context) error { return checkWord(r.(*word).b, ctx) }

// checkWord checks that a request and its context are of the same call.
func checkWord(b []byte, ctx context.Context) error {
	id, err := strconv.ParseUint(Metadata(ctx)["id"][0], 10, 64)
	if err == nil && !bytes.Equal(b, wordOf(id)) {
		err = fmt.Errorf("call %d has the request % x", id, b[:min(len(b), 8)])
	}
	return err
}

// laterCalls answers calls in a random order, or lets handlers do so.
type laterCalls struct {
	t  *testing.T
	mu sync.Mutex
	// waiting are calls without an answer.
	waiting []Pending
}

func (l *laterCalls) add(p Pending) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, p)
}

// answer answers calls until stop is closed and all are answered.
func (l *laterCalls) answer(stop <-chan struct{}) {
	var answers Answers
	for {
		stopped := false
		select {
		case <-stop:
			stopped = true
		default:
		}
		l.mu.Lock()
		list := l.waiting
		l.waiting = nil
		l.mu.Unlock()
		if len(list) == 0 && stopped {
			return
		}
		rand.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for i, p := range list {
			if err := sameWord(p.Request(), p.Context()); err != nil {
				l.t.Error(err)
			}
			if rand.IntN(5) == 0 {
				p.Handle()
			} else {
				answers.Add(p, p.Request(), nil)
			}
			if i%10 == 9 {
				answers.Flush()
			}
		}
		answers.Flush()
		if len(list) == 0 {
			time.Sleep(10 * time.Microsecond)
		}
	}
}

// rude is a client that resets some of its streams, gives some a short deadline, sends data after
// the end of some, and others in parts.
type rude struct {
	t  *testing.T
	nc net.Conn
	fr *http2.Framer
}

const rudeCalls = 4000

// send sends the calls of a client. It returns which of them must be answered.
func (c *rude) send(first uint64) error {
	var buf bytes.Buffer
	enc := hpack.NewEncoder(&buf)
	var unfinished uint32
	var rest []byte
	for i := range uint64(rudeCalls) {
		id, stream := first+i, uint32(2*i+1)
		fields := [][2]string{{":method", "POST"}, {":scheme", "http"},
			{":path", "/" + testService + "/" + []string{"Now", "Soon", "Any"}[id%3]},
			{":authority", "h"}, {"content-type", "application/grpc"}, {"te", "trailers"},
			{"id", fmt.Sprint(id)}}
		switch {
		case id%11 == 1:
			fields = append(fields, [2]string{"grpc-timeout", fmt.Sprint(1+rand.IntN(2000), "u")})
		case id%11 == 4:
			fields = append(fields, [2]string{"grpc-timeout", "1H"})
		}
		buf.Reset()
		for _, f := range fields {
			if err := enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]}); err != nil {
				return err
			}
		}
		if err := c.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream,
			BlockFragment: buf.Bytes(), EndHeaders: true}); err != nil {
			return err
		}
		if message := frame(0, wordOf(id)); i+1 < rudeCalls && (id%11 == 6 || id%11 == 8) {
			unfinished, rest = stream, message[messageHead+3:]
			if err := c.fr.WriteData(stream, false, message[:messageHead+3]); err != nil {
				return err
			}
		} else if err := c.fr.WriteData(stream, true, message); err != nil {
			return err
		}
		var err error
		switch id % 11 {
		case 7: // the message of this call arrives between two parts of the message before
			err = c.fr.WriteData(unfinished, true, rest)
		case 9: // the message of the call before stays unfinished
			err = c.fr.WriteRSTStream(unfinished, http2.ErrCodeCancel)
		case 2:
			err = c.fr.WriteRSTStream(stream, http2.ErrCodeCancel)
		case 3:
			err = c.fr.WriteData(stream, false, []byte("more"))
		case 5:
			err = c.fr.WriteWindowUpdate(stream, 1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// receive checks the answers, until all are there that must be.
func (c *rude) receive(first uint64) error {
	missing := map[uint32]bool{}
	for i := range uint64(rudeCalls) {
		switch (first + i) % 11 {
		case 1, 2, 3, 8:
		default:
			missing[uint32(2*i+1)] = true
		}
	}
	bodies := map[uint32][]byte{}
	for len(missing) > 0 {
		f, err := c.fr.ReadFrame()
		if err != nil {
			return err
		}
		stream := f.Header().StreamID
		id := first + uint64(stream-1)/2
		switch f := f.(type) {
		case *http2.DataFrame:
			bodies[stream] = append(bodies[stream], f.Data()...)
		case *http2.MetaHeadersFrame:
			if !f.StreamEnded() {
				continue
			}
			late := id%11 == 1 &&
				slices.ContainsFunc(f.Fields,
					func(f hpack.HeaderField) bool {
						return f.Name == "grpc-status" &&
							f.Value == "4"
					})
			if late && len(bodies[stream]) == 0 {
				continue // the deadline was before the answer
			}
			if b := bodies[stream]; len(b) < messageHead ||
				!bytes.Equal(b[messageHead:], wordOf(id)) {
				return fmt.Errorf("call %d was answered with % x, %v", id,
					b[:min(len(b), 16)], f.Fields)
			}
			delete(missing, stream)
		case *http2.RSTStreamFrame:
			if missing[stream] {
				return fmt.Errorf("call %d was reset with %v", id, f.ErrCode)
			}
		case *http2.GoAwayFrame:
			return fmt.Errorf("ended: %v %s", f.ErrCode, f.DebugData())
		}
	}
	return nil
}

// TestRecycledCalls: calls whose memory serves others keep their answers, requests and contexts,
// whatever clients send for streams that have ended.
func TestRecycledCalls(t *testing.T) {
	later := &laterCalls{t: t}
	begin := func(how func() Begun) func(context.Context, any, Pending) (any, Begun) {
		return func(ctx context.Context, r any, p Pending) (any, Begun) {
			if err := sameWord(r, ctx); err != nil {
				t.Error(err)
			}
			switch how := how(); how {
			case Started:
				later.add(p)
				return nil, how
			case Answered:
				return r, how
			}
			return nil, Declined
		}
	}
	unary := func(ctx context.Context, r any) (any, error) { return r, nil }
	// Requests are used again; the content of a free one has no meaning.
	words, freed := sync.Pool{New: newWord}, atomic.Int64{}
	free := func(r any) {
		w := r.(*word)
		for i := range w.b {
			w.b[i] = 0xee
		}
		w.b = nil
		freed.Add(1)
		words.Put(w)
	}
	method := func(name string, how func() Begun) Method {
		return Method{Name: name, NewRequest: words.Get, Free: free, Unary: unary,
			Begin: begin(how)}
	}
	_, addr := startServer(t, true, func(o *Options) {
		o.Services[0].Methods = append(o.Services[0].Methods,
			method("Now", func() Begun { return Answered }),
			method("Soon", func() Begun { return Started }),
			method("Any", func() Begun {
				return []Begun{Answered, Started,
					Declined}[rand.IntN(3)]
			}))
	})
	stop := make(chan struct{})
	var answering, clients sync.WaitGroup
	answering.Go(func() { later.answer(stop) })
	for n := range uint64(4) {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		c := &rude{t: t, nc: nc, fr: http2.NewFramer(nc, nc)}
		c.fr.AllowIllegalWrites = true
		c.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
		if _, err := nc.Write([]byte(http2.ClientPreface)); err != nil {
			t.Fatal(err)
		}
		if err := c.fr.WriteSettings(); err != nil {
			t.Fatal(err)
		}
		if err := c.fr.WriteWindowUpdate(0, 1<<30); err != nil { // enough for all answers
			t.Fatal(err)
		}
		first := 1 + n*rudeCalls
		clients.Go(func() {
			if err := c.send(first); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
		})
		clients.Go(func() {
			if err := c.receive(first); err != nil {
				t.Errorf("client %d: %v", n, err)
			}
		})
	}
	clients.Wait()
	close(stop)
	answering.Wait()
	if freed.Load() == 0 {
		t.Error("no request was freed")
	}
}
