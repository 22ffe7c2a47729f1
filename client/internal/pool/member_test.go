package pool

import (
	"log/slog"
	"testing"

	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto"
)

// A stream that is asked to leave may use the pool and the member: neither is locked then.
func TestLeaveMayUseThePool(t *testing.T) {
	p := New(Config{Codec: encoding.GetCodecV2("proto"), Credentials: insecure.NewCredentials(),
		Logger: slog.New(slog.DiscardHandler), Changed: func(string, State, error) {}})
	defer p.Close()
	e, err := Parse("127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Find(e)
	if err != nil {
		t.Fatal(err)
	}
	m.listed.Store(true)
	asked := 0
	var forget func()
	leave := func() {
		asked++
		p.Size()
		m.lastError()
		if forget != nil {
			forget()
		}
		m.OnLeave(m.Leaves(), func() {})()
	}
	forget = m.OnLeave(m.Leaves(), leave)
	m.notifyLeave()
	if m.notifyLeave(); asked != 1 {
		t.Errorf("a stream that forgets was asked %d times", asked)
	}
	before := m.Leaves()
	m.notifyLeave()
	forget = nil
	if m.OnLeave(before, leave); asked != 2 {
		t.Errorf("a stream of before was asked %d times", asked-1)
	}
}
