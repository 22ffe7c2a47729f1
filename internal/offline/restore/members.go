package restore

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"vigil/internal/state/cluster"
)

// ParseMembers parses a list of members in the form of --initial-cluster: NAME=URL, separated by
// commas; a name with several URLs is repeated.
func ParseMembers(list string) ([]cluster.Member, error) {
	var members []cluster.Member
	for _, part := range strings.Split(list, ",") {
		name, u, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form NAME=URL", part)
		}
		if err := checkURL(u); err != nil {
			return nil, err
		}
		i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.Name == name })
		if i < 0 {
			i = len(members)
			members = append(members, cluster.Member{Name: name})
		}
		members[i].PeerURLs = append(members[i].PeerURLs, u)
	}
	for i := range members {
		slices.Sort(members[i].PeerURLs)
	}
	return members, nil
}

// ParseURLs parses a list of URLs, and returns them sorted.
func ParseURLs(list string) ([]string, error) {
	var urls []string
	for _, u := range strings.Split(list, ",") {
		u = strings.TrimSpace(u)
		if err := checkURL(u); err != nil {
			return nil, err
		}
		urls = append(urls, u)
	}
	slices.Sort(urls)
	return urls, nil
}

func checkURL(s string) error {
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return fmt.Errorf("%q is not a URL: %w", s, errors.Unwrap(err))
	case u.Scheme == "unix" || u.Scheme == "unixs":
		return nil
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("URL scheme must be http, https, unix, or unixs: %s", s)
	case u.Hostname() == "" || u.Port() == "":
		return fmt.Errorf(`URL address does not have the form "host:port": %s`, s)
	case u.Path != "":
		return fmt.Errorf("URL must not contain a path: %s", s)
	}
	return nil
}
