package server

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"vigil/internal/member/discovery"
	"vigil/internal/state/cluster"
)

const (
	// resolveTimeout bounds the comparison of lists of URLs by their addresses, as in etcd. The DNS
	// may know a name only some time after the creation of its member.
	resolveTimeout = 30 * time.Second
	// resolveInterval is the pause between two attempts to resolve a name.
	resolveInterval = time.Second
)

// matchMembers matches each entry of the initial cluster with a member of a cluster, by the
// addresses of their peer URLs. It returns the names of the entries in the order of the members of
// the cluster. Both lists have the same length.
func matchMembers(ctx context.Context, known, initial []cluster.Member,
	log *slog.Logger) (names []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	names = make([]string, len(known))
	used := make([]bool, len(initial))
	// Match equal spellings first: they need no DNS, and a name with several addresses then cannot
	// match the entry of another member.
	for i, k := range known {
		for j, x := range initial {
			if !used[j] && names[i] == "" &&
				slices.Equal(spelled(k.PeerURLs), spelled(x.PeerURLs)) {
				names[i], used[j] = x.Name, true
			}
		}
	}
	for i, k := range known {
		if names[i] != "" {
			continue
		}
		failed := ""
		for j, x := range initial {
			if used[j] {
				continue
			}
			same, err := sameURLs(ctx, k.PeerURLs, x.PeerURLs, log)
			if same {
				names[i], used[j] = x.Name, true
				break
			}
			if err != nil {
				failed = fmt.Sprintf(" (last resolver error: %v)", err)
			}
		}
		if names[i] == "" {
			return nil, fmt.Errorf("no match found for existing member %x at %s%s", k.ID,
				strings.Join(k.PeerURLs, ","), failed)
		}
	}
	return names, nil
}

// sameURLs reports whether two lists of URLs have the same meaning: the same spelling of the same
// addresses, or names that lead to them. It tries to resolve names until ctx ends.
func sameURLs(ctx context.Context, a, b []string, log *slog.Logger) (bool, error) {
	a, b = spelled(a), spelled(b)
	if len(a) != len(b) || slices.Equal(a, b) {
		return len(a) == len(b), nil
	}
	a, err := resolve(ctx, a, log)
	if err != nil {
		return false, err
	}
	b, err = resolve(ctx, b, log)
	return err == nil && slices.Equal(a, b), err
}

// spelled returns URLs in one spelling, sorted: an IP address as the standard library writes it, a
// name in lower case.
func spelled(urls []string) []string {
	out := slices.Clone(urls)
	for i, s := range urls {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Port() == "" {
			continue
		}
		host := strings.ToLower(u.Hostname())
		if ip, err := netip.ParseAddr(host); err == nil {
			host = ip.String()
		}
		out[i] = strings.ToLower(u.Scheme) + "://" + net.JoinHostPort(host, u.Port())
	}
	slices.Sort(out)
	return out
}

// resolve replaces the host of each URL by its first address.
func resolve(ctx context.Context, urls []string, log *slog.Logger) ([]string, error) {
	out := slices.Clone(urls)
	for i, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			return nil, err
		}
		host := u.Hostname()
		if host == "" || u.Port() == "" {
			continue // a socket file
		}
		for {
			ip, err := discovery.Address(ctx, net.DefaultResolver, host)
			if err == nil {
				out[i] = u.Scheme + "://" + net.JoinHostPort(ip, u.Port())
				break
			}
			log.Warn("failed to resolve URL Host", "url", s, "retry-interval",
				resolveInterval, "error", err)
			select {
			case <-time.After(resolveInterval):
			case <-ctx.Done():
				return nil, err
			}
		}
	}
	return spelled(out), nil
}
