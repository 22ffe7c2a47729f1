package server

import (
	"fmt"
	"slices"
	"strings"

	"vigil/internal/edge/listen"
	"vigil/internal/state/cluster"
)

// initialMembers parses InitialCluster.
func (c Config) initialMembers() (members []cluster.Member, err error) {
	owner := map[string]string{}
	for _, part := range strings.Split(c.InitialCluster, ",") {
		name, u, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form NAME=URL", part)
		}
		if err := listen.CheckURL(u); err != nil {
			return nil, err
		}
		if by, ok := owner[u]; ok {
			return nil, fmt.Errorf("%s is listed twice, for %q and %q: each member needs a URL of its own", u, by, name)
		}
		owner[u] = name
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
