package diff

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/api/annotations"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// post is a request of the gateway.
func post(path, body string, header ...string) Request {
	return Request{Path: path, Body: body, Header: header}
}

// show prints an answer as a line of a table.
func show(t *testing.T, r Request, a Answer) {
	t.Helper()
	body := strings.ReplaceAll(a.Body, "\n", "|")
	if len(body) > 160 {
		body = fmt.Sprintf("%s...(%d bytes)", body[:160], len(a.Body))
	}
	t.Logf("%-70s | %d %s", r, a.Status, body)
}

// gatewayPaths lists the paths that the API's descriptors give to methods.
func gatewayPaths(t *testing.T) map[string]protoreflect.FullName {
	t.Helper()
	paths := map[string]protoreflect.FullName{}
	for _, name := range services {
		d, err := protoregistry.GlobalFiles.FindDescriptorByName(name)
		if err != nil {
			t.Fatal(err)
		}
		methods := d.(protoreflect.ServiceDescriptor).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			rule, _ := proto.GetExtension(m.Options(), annotations.E_Http).(*annotations.HttpRule)
			for _, r := range append(rule.GetAdditionalBindings(), rule) {
				if path := r.GetPost(); path != "" {
					paths[path] = m.FullName()
				}
			}
		}
	}
	if len(paths) < 50 {
		t.Fatalf("only %d paths: %v", len(paths), paths)
	}
	return paths
}

// TestGatewayPaths calls every path of the gateway.
func TestGatewayPaths(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	paths := gatewayPaths(t)
	k, v, l := b64("k"), b64("v"), `"name":"`+b64("l")+`"`
	for _, r := range []Request{
		post("/v3/kv/put", `{"key":"`+k+`","value":"`+v+`"}`),
		post("/v3/kv/put", `{"key":"`+k+`","value":"`+v+`","prev_kv":true}`),
		post("/v3/kv/range", `{"key":"`+k+`"}`),
		post("/v3/kv/range",
			`{"key":"AA==","range_end":"AA==","limit":"1","sort_order":"DESCEND","sort_target":"MOD"}`),
		post("/v3/kv/txn", `{"compare":[{"target":"VERSION","key":"`+k+
			`","version":"2","result":"EQUAL"}],"success":[{"request_put":{"key":"`+k+`","value":"`+
			v+`"}},{"request_range":{"key":"`+k+
			`"}},{"request_txn":{"success":[{"request_delete_range":{"key":"`+b64("o")+
			`"}}]}}],"failure":[{"request_range":{"key":"`+k+`"}}]}`),
		post("/v3/kv/txn", `{"compare":[{"target":"MOD","key":"`+k+
			`","mod_revision":"1"}],"failure":[{"request_range":{"key":"`+k+`"}}]}`),
		post("/v3/kv/deleterange", `{"key":"`+k+`","prev_kv":true}`),
		post("/v3/kv/compaction", `{"revision":"2"}`),
		post("/v3/kv/compaction", `{"revision":"3","physical":true}`),
		post("/v3/kv/compaction", `{"revision":"1"}`),
		{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k +
			`","start_revision":"4"}}`, Lines: 2},
		{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k +
			`","start_revision":"4","watch_id":"7","filters":["NOPUT"],"prev_kv":true}}`, Lines: 2},
		{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k +
			`","start_revision":"1"}}`, Lines: 2},
		{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k +
			`"}}{"create_request":{"key":"` + k +
			`"}} {"cancel_request":{"watch_id":"0"}}`, Lines: 3},
		{Path: "/v3/watch", Body: `{"create_request":{"key":"` + k +
			`","watch_id":"1"}}{"create_request":{"key":"` + k + `","watch_id":"1"}}`, Lines: 2},
		post("/v3/lease/grant", `{"ID":"4660","TTL":"100"}`),
		post("/v3/lease/grant", `{"ID":4661,"TTL":100}`),
		post("/v3/lease/grant", `{"ID":4660,"TTL":100}`),
		{Path: "/v3/lease/keepalive", Body: `{"ID":"4660"}`, Lines: 1},
		{Path: "/v3/lease/keepalive", Body: `{"ID":"4660"}{"ID":4661}{"ID":"1"}`, Lines: 4},
		post("/v3/lease/timetolive", `{"ID":"1"}`),
		post("/v3/kv/lease/timetolive", `{"ID":"1","keys":true}`),
		post("/v3/lease/leases", `{}`),
		post("/v3/kv/lease/leases", `{}`),
		post("/v3/lease/revoke", `{"ID":"4661"}`),
		post("/v3/kv/lease/revoke", `{"ID":"4661"}`),
		post("/v3/lock/lock", `{`+l+`,"lease":"4660"}`),
		post("/v3/lock/lock", `{`+l+`,"lease":"4661"}`),
		post("/v3/lock/unlock", `{"key":"`+b64("l/1234")+`"}`),
		post("/v3/lock/unlock", `{}`),
		post("/v3/election/leader", `{`+l+`}`),
		post("/v3/election/campaign", `{`+l+`,"lease":"4660","value":"`+v+`"}`),
		post("/v3/election/leader", `{`+l+`}`),
		post("/v3/election/proclaim", `{"value":"`+v+`"}`),
		post("/v3/election/proclaim",
			`{"leader":{"key":"`+b64("l/1234")+`","rev":"1","lease":"4660"},"value":"`+v+`"}`),
		{Path: "/v3/election/observe", Body: `{` + l + `}`, Lines: 1},
		post("/v3/election/resign",
			`{"leader":{"key":"`+b64("l/1234")+`","rev":"1","lease":"4660"}}`),
		post("/v3/election/resign", `{}`),
		post("/v3/cluster/member/list", `{"linearizable":true}`),
		post("/v3/cluster/member/list", `{}`),
		post("/v3/cluster/member/add", `{"peerURLs":["no url"]}`),
		post("/v3/cluster/member/update", `{"ID":"1","peerURLs":["http://127.0.0.1:1"]}`),
		post("/v3/cluster/member/promote", `{"ID":"1"}`),
		post("/v3/cluster/member/remove", `{"ID":"1"}`),
		post("/v3/maintenance/alarm", `{"action":"GET"}`),
		post("/v3/maintenance/alarm", `{"action":"ACTIVATE","memberID":"5","alarm":"NOSPACE"}`),
		post("/v3/maintenance/alarm", `{"action":"DEACTIVATE","memberID":"5","alarm":"NOSPACE"}`),
		post("/v3/maintenance/status", `{}`),
		post("/v3/maintenance/defragment", `{}`),
		post("/v3/maintenance/hashkv", `{}`),
		post("/v3/maintenance/hashkv", `{"revision":"9999"}`),
		post("/v3/maintenance/transfer-leadership", `{"targetID":"1"}`),
		post("/v3/maintenance/downgrade", `{"action":"VALIDATE","version":"3.6"}`),
	} {
		show(t, r, p.HTTP(r))
		delete(paths, r.Path)
	}
	for path := range paths {
		if !strings.HasPrefix(path, "/v3/auth/") {
			continue
		}
		r := post(path, `{}`)
		show(t, r, p.HTTP(r))
		delete(paths, path)
	}
	// What these answer with is of the server's own.
	for _, r := range []Request{post("/v3/maintenance/hash", `{}`),
		{Path: "/v3/maintenance/snapshot", Body: `{}`, Lines: 1}} {
		field := map[string]string{"/v3/maintenance/hash": `"hash":`,
			"/v3/maintenance/snapshot": `"blob":`}[r.Path]
		for _, s := range []*Side{p.Etcd, p.Subject} {
			if a, err := s.Ask(t.Context(), s.Server.Addr(), r); err != nil || a.Status != 200 ||
				!strings.Contains(a.Body, field) {
				t.Errorf("%s: %v: %v, %v", s.Server.Addr(), r, a, err)
			}
		}
		delete(paths, r.Path)
	}
	for path, method := range paths {
		t.Errorf("%s (%s) is not called", path, method)
	}
	p.everything()
	p.Finish(t, &tally)
}

// patience is for requests that are not answered.
const patience = 300 * time.Millisecond

// TestGatewayBadInput: what is no request of the API.
func TestGatewayBadInput(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	k := b64("k")
	large := strings.Repeat("x", 1<<20)
	list := []Request{
		post("/v3/kv/range", `{`), post("/v3/kv/range", `}`), post("/v3/kv/range", `[]`),
		post("/v3/kv/range", `null`),
		post("/v3/kv/range", `"text"`), post("/v3/kv/range", `1`), post("/v3/kv/range", ` `),
		post("/v3/kv/range", "\xff"),
		post("/v3/kv/range", `{"key":}`), post("/v3/kv/range", `{"key":"`+k+`"`),
		post("/v3/kv/range", `{"key":"`+k+`"} trailing`),
		post("/v3/kv/range", `{"key":"`+k+`"}{"key":"`+k+`"}`),
		post("/v3/kv/range", `{"key":"not base64!"}`),
		post("/v3/kv/range", `{"key":"a"}`), post("/v3/kv/range", `{"key":"ag"}`),
		post("/v3/kv/range", `{"key":"_-8="}`),
		post("/v3/kv/range", `{"key":1}`), post("/v3/kv/range", `{"key":true}`),
		post("/v3/kv/range", `{"key":null}`),
		post("/v3/kv/range", `{"key":["`+k+`"]}`), post("/v3/kv/range", `{"key":{}}`),
		post("/v3/kv/range", `{"key":"\ud800"}`),
		post("/v3/kv/range", "{\"key\":\"\xff\"}"),
		post("/v3/kv/range", `{"nobody":"knows","key":"`+k+`","this":{"deep":[1,2,{"x":null}]}}`),
		post("/v3/kv/range", `{"key":"`+k+`","key":"`+k+`"}`),
		post("/v3/kv/range", `{"KEY":"`+k+`"}`),
		post("/v3/kv/range", `{"key":"`+k+`","rangeEnd":"`+k+`","sortOrder":"ASCEND"}`),
		post("/v3/kv/range", `{"key":"`+k+`","limit":"x"}`),
		post("/v3/kv/range", `{"key":"`+k+`","limit":1.5}`),
		post("/v3/kv/range", `{"key":"`+k+`","limit":1e2}`),
		post("/v3/kv/range", `{"key":"`+k+`","limit":1.0}`),
		post("/v3/kv/range", `{"key":"`+k+`","limit":"9223372036854775808"}`),
		post("/v3/kv/range", `{"key":"`+k+`","limit":-1}`),
		post("/v3/kv/range", `{"key":"`+k+`","sort_order":"SIDEWAYS"}`),
		post("/v3/kv/range", `{"key":"`+k+`","sort_order":77}`),
		post("/v3/kv/range", `{"key":"`+k+`","sort_order":1,"sort_target":"1"}`),
		post("/v3/kv/range", `{"key":"`+k+`","serializable":"true"}`),
		post("/v3/kv/range", `{"key":"`+k+`","revision":"100"}`), post("/v3/kv/range", `{}`),
		post("/v3/kv/put", `{}`),
		post("/v3/kv/put", `{"key":"`+k+`","lease":"1"}`),
		post("/v3/kv/put", `{"key":"`+k+`","ignore_value":true}`),
		post("/v3/kv/txn", `{"success":[{}]}`),
		post("/v3/kv/txn", `{"success":[{"request_put":{"key":"`+k+
			`"},"request_range":{"key":"`+k+`"}}]}`),
		post("/v3/kv/txn", `{"compare":[{"key":"`+k+`","version":"1","value":"`+k+`"}]}`),
		post("/v3/kv/txn", `{"success":`+strings.Repeat(`[`, 20000)+`}`),
		post("/v3/kv/txn", `{"success":[{"request_put":{"key":"`+k+
			`"}},{"request_put":{"key":"`+k+`"}}]}`),
		post("/v3/kv/txn", strings.Repeat(`{"success":[{"request_txn":`, 200)+`{}`+
			strings.Repeat(`}]}`, 200)),
		// Sizes: a request that is too large, a message that is.
		post("/v3/kv/put", `{"key":"`+k+`","value":"`+b64(large)+`"}`),
		post("/v3/kv/put", `{"key":"`+k+`","value":"`+b64(large+large[:600<<10])+`"}`),
		post("/v3/kv/put", `{"key":"`+k+`","value":"`+b64(large+large+large)+`"}`),
		{Path: "/v3/kv/put", Body: `{"key":"` + k + `","value":"` + b64(large+large+large) + `"}`,
			Chunked: true},
		post("/v3/kv/range", `{"unknown":"`+large+`","key":"`+k+`"}`),
		// Methods and paths.
		{Path: "/v3/kv/range"}, {Method: "PUT", Path: "/v3/kv/range", Body: `{}`},
		{Method: "DELETE", Path: "/v3/kv/range"},
		{Method: "HEAD", Path: "/v3/kv/range"}, {Method: "OPTIONS", Path: "/v3/kv/range"},
		{Method: "PATCH", Path: "/v3/kv/range", Body: "{}"},
		{Method: "POST", Path: "/v3/kv/range"}, {Method: "POST", Path: "/v3/"},
		{Method: "POST", Path: "/v3"}, {Path: "/v3/"},
		post("/v3/kv/nothing", `{}`), post("/v3/kv/range/", `{"key":"`+k+`"}`),
		post("/v3//kv//range", `{"key":"`+k+`"}`),
		post("/v3/kv/../kv/range", `{"key":"`+k+`"}`),
		post("/v3/kv/range?key="+k, `{"key":"`+k+`"}`), post("/v3/KV/range", `{}`),
		post("/v3/kv%2Frange", `{"key":"`+k+`"}`), post("/v3/kv/range:verb", `{"key":"`+k+`"}`),
		post("/v3beta/kv/range", `{"key":"`+k+`"}`), post("/v3alpha/kv/range", `{"key":"`+k+`"}`),
		post("/v2/keys/x", `{}`),
		// Headers.
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Content-Type", "text/plain"),
		post("/v3/kv/range", `key=x`, "Content-Type", "application/x-www-form-urlencoded"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Content-Type", "application/x-www-form-urlencoded",
			"X-HTTP-Method-Override", "GET"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Accept", "text/html"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "TE", "trailers"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Grpc-Timeout", "nonsense"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Grpc-Timeout", "1n"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Grpc-Timeout", "100S"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Grpc-Metadata-Hasleader", "true"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Grpc-Metadata-X-Bin", "%%%"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Authorization", "no token"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Authorization", "Bearer none"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Origin", "http://example.com"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Host", "elsewhere.example"),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "Grpc-Metadata-Large",
			strings.Repeat("m", 100<<10)),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "X-Large", strings.Repeat("m", 100<<10)),
		post("/v3/kv/range", `{"key":"`+k+`"}`, "X-Large", strings.Repeat("m", 2<<20)),
		// Streams.
		{Path: "/v3/watch", Body: `{`, Lines: 1, Patience: patience},
		{Path: "/v3/watch", Body: `{"create_request":{"key":"!"}}`, Lines: 1, Patience: patience},
		{Path: "/v3/lease/keepalive", Body: `nonsense`, Lines: 1},
		{Path: "/v3/lease/keepalive", Body: `{"ID":"x"}`, Lines: 1},
		{Path: "/v3/lease/keepalive", Body: `{}`, Lines: 2},
		{Path: "/v3/lease/keepalive", Body: ` `, Lines: 1},
		{Path: "/v3/election/observe", Body: `{"name":1}`, Lines: 1},
		post("/v3/election/campaign", `{"name":"!"}`),
		post("/v3/lock/lock", `{"lease":{}}`), post("/v3/lock/lock", `[1]`),
		post("/v3/lock/nothing", `{}`), {Path: "/v3/lock/lock"},
	}
	for _, r := range list {
		show(t, r, p.HTTP(r))
	}
	p.everything()
	p.Finish(t, &tally)
}

// TestPlainHTTP calls the paths other than gRPC and the gateway.
func TestPlainHTTP(t *testing.T) {
	t.Parallel()
	p := NewPair(t)
	check := func(paths ...string) {
		for _, path := range paths {
			r := Request{Path: path}
			show(t, r, p.HTTP(r))
		}
	}
	check("/health", "/health?serializable=true", "/health?exclude=NOSPACE",
		"/health?exclude=NOSPACE&exclude=CORRUPT", "/health?exclude=",
		"/health/", "/livez", "/livez?exclude=serializable_read", "/livez?exclude=nothing",
		"/livez/serializable_read", "/livez/linearizable_read", "/livez/",
		"/readyz", "/readyz/data_corruption", "/readyz/serializable_read",
		"/readyz/linearizable_read", "/readyz/non_learner", "/readyz/nothing",
		"/readyz/non_learner?verbose", "/livez?verbose", "/livez?verbose=false",
		"/readyz?exclude=data_corruption&exclude=serializable_read&exclude=linearizable_read&exclude=non_learner&verbose",
		"/readyz?verbose&exclude=data_corruption&exclude=serializable_read&exclude=linearizable_read",
		"/", "/nothing", "/members", "/v2/keys", "/debug/pprof/", "/debug/requests",
		"/proxy/health", "/%2e%2e/health")
	for _, method := range []string{"POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"} {
		for _, path := range []string{"/health", "/livez", "/readyz", "/readyz/non_learner",
			"/version", "/debug/vars", "/nothing"} {
			r := Request{Method: method, Path: path}
			show(t, r, p.HTTP(r))
		}
	}
	for _, path := range []string{"/version", "/health", "/livez", "/members", "/members/",
		"/nothing", "/"} {
		r := Request{Path: path}
		show(t, r, p.PeerHTTP(r))
	}
	for _, method := range []string{"POST", "HEAD", "OPTIONS"} {
		for _, path := range []string{"/version", "/members"} {
			r := Request{Method: method, Path: path}
			show(t, r, p.PeerHTTP(r))
		}
	}
	// Alarms in the answers.
	for _, alarm := range []string{"NOSPACE", "CORRUPT"} {
		body := fmt.Sprintf(`{"action":"ACTIVATE","alarm":%q,"memberID":"%%d"}`, alarm)
		for _, s := range []*Side{p.Etcd, p.Subject} {
			id := s.ids.member
			if alarm == "NOSPACE" {
				id = 5 // a member clears its own when there is space
			}
			if _, err := s.Ask(t.Context(), s.Server.Addr(),
				post("/v3/maintenance/alarm", fmt.Sprintf(body, id))); err != nil {
				t.Fatal(err)
			}
		}
		if alarm == "NOSPACE" {
			check("/health") // of several alarms, etcd reports any
		}
		check("/health?exclude=NOSPACE", "/health?exclude=CORRUPT",
			"/health?exclude=NOSPACE&exclude=CORRUPT", "/livez", "/readyz/data_corruption",
			"/readyz?exclude=data_corruption",
			"/readyz?exclude=serializable_read&exclude=linearizable_read&exclude=non_learner")
	}
	p.Finish(t, &tally)
}

// TestAccess: hosts and origins that are listed and that are not.
func TestAccess(t *testing.T) {
	p := NewPair(t, "--cors=http://good.example:80", "--host-whitelist=127.0.0.1,good.example")
	for _, r := range []Request{
		{Path: "/health"},
		{Path: "/health", Header: []string{"Origin", "http://good.example:80"}},
		{Path: "/health", Header: []string{"Origin", "http://bad.example:80"}},
		{Path: "/health", Header: []string{"Host", "good.example"}},
		{Path: "/health", Header: []string{"Host", "good.example:2379"}},
		{Path: "/health", Header: []string{"Host", "bad.example"}},
		{Method: "OPTIONS", Path: "/v3/kv/range",
			Header: []string{"Origin", "http://good.example:80"}},
		{Method: "OPTIONS", Path: "/v3/kv/range",
			Header: []string{"Origin", "http://bad.example:80"}},
		{Method: "OPTIONS", Path: "/nothing", Header: []string{"Host", "bad.example"}},
		post("/v3/kv/range", `{"key":"aw=="}`, "Host", "bad.example"),
	} {
		show(t, r, p.HTTP(r))
	}
	p.Finish(t, &tally)
}

// TestNoGateway: --enable-grpc-gateway=false.
func TestNoGateway(t *testing.T) {
	p := NewPair(t, "--enable-grpc-gateway=false")
	for _, r := range []Request{post("/v3/kv/range", `{"key":"aw=="}`), {Path: "/v3/"},
		{Path: "/health"}} {
		show(t, r, p.HTTP(r))
	}
	p.Finish(t, &tally)
}
