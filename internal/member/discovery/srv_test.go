package discovery

import (
	"context"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// zone answers questions on a UDP port of loopback: names that end with a dot, lower case.
type zone struct {
	srv map[string][]dnsmessage.SRVResource
	a   map[string][4]byte
}

func (z zone) serve(t *testing.T) *net.Resolver {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := z.answer(b[:n]); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() {
		_ = c.Close()
		<-done
	})
	return &net.Resolver{PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "udp", c.LocalAddr().String())
		}}
}

func (z zone) answer(question []byte) []byte {
	var m dnsmessage.Message
	if m.Unpack(question) != nil || len(m.Questions) != 1 {
		return nil
	}
	q := m.Questions[0]
	name := strings.ToLower(q.Name.String())
	m.Header.Response, m.Header.Authoritative = true, true
	m.Answers, m.Authorities, m.Additionals = nil, nil, nil
	head := func(kind dnsmessage.Type) dnsmessage.ResourceHeader {
		return dnsmessage.ResourceHeader{Name: q.Name, Type: kind,
			Class: dnsmessage.ClassINET, TTL: 1}
	}
	ip, host := z.a[name]
	records, service := z.srv[name]
	switch {
	case service && q.Type == dnsmessage.TypeSRV:
		for _, r := range records {
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: head(q.Type), Body: &r})
		}
	case host && q.Type == dnsmessage.TypeA:
		m.Answers = []dnsmessage.Resource{{Header: head(q.Type),
			Body: &dnsmessage.AResource{A: ip}}}
	case !host && !service:
		m.Header.RCode = dnsmessage.RCodeNameError
	}
	b, err := m.Pack()
	if err != nil {
		return nil
	}
	return b
}

func record(target string, port uint16) dnsmessage.SRVResource {
	return dnsmessage.SRVResource{Target: dnsmessage.MustNewName(target), Port: port}
}

var hosts = map[string][4]byte{
	"one.example.com.": {10, 0, 0, 1}, "two.example.com.": {10, 0, 0, 2},
	"three.example.com.": {10, 0, 0, 3},
}

func TestLookup(t *testing.T) {
	const plain, secure = "_etcd-server._tcp.example.com.", "_etcd-server-ssl._tcp.example.com."
	three := []dnsmessage.SRVResource{record("one.example.com.", 2380),
		record("two.example.com.", 2380), record("three.example.com.", 2380)}
	for _, c := range []struct {
		name string
		srv  map[string][]dnsmessage.SRVResource
		c    Config
		own  []string
		// parts are what the list has, in any order; otherwise err is in the error.
		parts []string
		err   string
	}{
		{"plain, own by name", map[string][]dnsmessage.SRVResource{plain: three}, Config{},
			[]string{"http://two.example.com:2380"},
			[]string{"me=http://two.example.com:2380", "=http://one.example.com:2380",
				"=http://three.example.com:2380"}, ""},
		{"plain, own by address", map[string][]dnsmessage.SRVResource{plain: three}, Config{},
			[]string{"http://10.0.0.3:2380"},
			[]string{"me=http://three.example.com:2380", "=http://one.example.com:2380",
				"=http://two.example.com:2380"}, ""},
		{"secure", map[string][]dnsmessage.SRVResource{secure: three}, Config{},
			[]string{"https://10.0.0.1:2380"},
			[]string{"me=https://one.example.com:2380", "=https://two.example.com:2380",
				"=https://three.example.com:2380"}, ""},
		{"named service", map[string][]dnsmessage.SRVResource{"_etcd-server-blue._tcp.example.com.": three[:1]}, Config{SRVName: "blue"}, []string{"http://10.0.0.1:2380"},
			[]string{"me=http://one.example.com:2380"}, ""},
		{"both", map[string][]dnsmessage.SRVResource{secure: three[:1], plain: three[1:2]},
			Config{}, []string{"http://10.0.0.2:2380"},
			[]string{"0=https://one.example.com:2380", "me=http://two.example.com:2380"}, ""},
		{"a name without an address is left out",
			map[string][]dnsmessage.SRVResource{plain: append(three[:2:2],
				record("gone.example.com.", 2380))}, Config{}, []string{"http://10.0.0.1:2380"},
			[]string{"me=http://one.example.com:2380", "0=http://two.example.com:2380"}, ""},
		{"not among them", map[string][]dnsmessage.SRVResource{plain: three}, Config{},
			[]string{"http://10.0.0.1:2381"}, nil,
			`cannot find local etcd member "me" in SRV records`},
		{"no records", nil, Config{}, []string{"http://10.0.0.1:2380"}, nil,
			"error querying DNS SRV records for _etcd-server-ssl lookup _etcd-server-ssl._tcp.example.com"},
		{"no records of the named service", map[string][]dnsmessage.SRVResource{plain: three},
			Config{SRVName: "blue"}, []string{"http://10.0.0.1:2380"}, nil,
			"error querying DNS SRV records for _etcd-server-blue lookup _etcd-server-blue._tcp.example.com"},
		{"wrong scheme", map[string][]dnsmessage.SRVResource{plain: three[:1]}, Config{},
			[]string{"https://10.0.0.1:2380"}, nil,
			"bootstrap at http://one.example.com:2380 from DNS for etcd-server has scheme mismatch with expected peer https://10.0.0.1:2380"},
		{"unknown host of its own", map[string][]dnsmessage.SRVResource{plain: three}, Config{},
			[]string{"http://nowhere.example.com:2380"}, nil, "nowhere.example.com"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.c.SRV, c.c.Resolver = "example.com", zone{c.srv, hosts}.serve(t)
			list, err := Lookup(t.Context(), c.c, "me", c.own)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("%q, %v, want an error with %q", list, err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Split(list, ",")
			if len(got) != len(c.parts) {
				t.Errorf("%d members in %s", len(got), list)
			}
			for _, part := range c.parts {
				if !strings.Contains(list, part) {
					t.Errorf("no %s in %s", part, list)
				}
			}
		})
	}
}

func TestClients(t *testing.T) {
	r := zone{srv: map[string][]dnsmessage.SRVResource{
		"_etcd-client-ssl._tcp.example.com.": {record("a.example.com.", 2379)},
		"_etcd-client._tcp.example.com.":     {record("b.example.com.", 2380)},
		"_etcd-client-x._tcp.example.com.":   {record("c.example.com.", 1)},
	}}.serve(t)
	for _, c := range []struct{ domain, suffix, want string }{
		{"example.com", "", "https://a.example.com:2379 http://b.example.com:2380"},
		{"example.com", "x", "http://c.example.com:1"},
		{"example.org", "", ""},
	} {
		list, err := Clients(t.Context(), r, c.domain, c.suffix)
		if got := strings.Join(list, " "); got != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s %s: %q, %v", c.domain, c.suffix, got, err)
		}
	}
}
