package discovery

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// Every member gets the same list, in whatever order it hears of the others.
func TestFirstToRegister(t *testing.T) {
	all := []peer{
		{"/m/c", "c=http://10.0.0.3:2380", 7},
		{"/m/a", "a=http://10.0.0.1:2380,a=http://10.0.1.1:2380", 9},
		{"/m/b", "b=unix:///run/b", 12},
		{"/m/late", "late=http://10.0.0.9:2380", 30},
	}
	const want = "c=http://10.0.0.3:2380,a=http://10.0.0.1:2380,a=http://10.0.1.1:2380,b=unix:///run/b"
	for range 50 {
		var r registered
		for _, i := range rand.Perm(len(all)) {
			if err := r.add(all[i]); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := r.initialCluster(3); err != nil || got != want {
			t.Fatalf("%q, %v, want %q", got, err, want)
		}
		if at := r.position("/m/late"); at != 3 {
			t.Fatalf("the last one is at %d", at)
		}
	}
}

func TestWhatIsNoPeer(t *testing.T) {
	var r registered
	for _, c := range []struct{ key, info, want string }{
		{"/m/a", "a=http://10.0.0.1:2380", ""},
		{"/m/a", "a=http://10.0.0.1:2380", "found duplicate peer from discovery service"},
		{"/m/b", "", "invalid peer info returned from discovery service"},
		{"/m/b", "http://10.0.0.1:2380", "invalid peer info returned from discovery service"},
	} {
		switch err := r.add(peer{c.key, c.info, 1}); {
		case c.want == "" && err != nil, c.want != "" && (err == nil || err.Error() != c.want):
			t.Errorf("%q: %v, want %q", c.info, err, c.want)
		}
	}
	for _, info := range []string{"a=", "a=nonsense", "a=http://10.0.0.1", "=http://10.0.0.1:2380",
		"a=ftp://10.0.0.1:2380", "a=http://10.0.0.1:2380,b=%"} {
		bad := registered{peers: []peer{{"/m/a", info, 1}}}
		if got, err := bad.initialCluster(1); !errors.Is(err, ErrInvalidURL) {
			t.Errorf("%q gives %q, %v", info, got, err)
		}
	}
}

// What anybody may have written into the registry is a list or an error.
func FuzzRegistered(f *testing.F) {
	f.Add("a=http://10.0.0.1:2380", "b=http://10.0.0.2:2380", int64(1), int64(2))
	f.Add("a=http://10.0.0.1:2380,,=", "b", int64(2), int64(2))
	f.Fuzz(func(t *testing.T, a, b string, ca, cb int64) {
		var r registered
		for _, p := range []peer{{"a", a, ca}, {"b", b, cb}, {"b", a, cb}} {
			_ = r.add(p)
		}
		if len(r.peers) == 0 {
			return
		}
		if !slices.IsSortedFunc(r.peers,
			func(a, b peer) int { return int(min(max(a.created-b.created, -1), 1)) }) &&
			ca > 0 && cb > 0 {
			t.Errorf("out of order: %v", r.peers)
		}
		list, err := r.initialCluster(len(r.peers))
		if err != nil {
			return
		}
		for _, part := range strings.Split(list, ",") {
			if list != "" && !strings.Contains(part, "=") {
				t.Errorf("%q in %q", part, list)
			}
		}
	})
}
