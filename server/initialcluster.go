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
		if strings.TrimSpace(part) == "" {
			continue // a comma at the end
		}
		name, u, ok := strings.Cut(part, "=")
		// Spaces may follow a comma. A name in which --name itself has such spaces keeps them.
		if name != c.Name {
			name = strings.TrimSpace(name)
		}
		if u = strings.TrimSpace(u); !ok || name == "" {
			return nil, fmt.Errorf("%q is not of the form NAME=URL", part)
		}
		if err := listen.CheckURL(u); err != nil {
			return nil, err
		}
		if by, ok := owner[u]; ok {
			return nil, fmt.Errorf("%s is listed twice, for %q and %q: each member needs a URL "+
				"of its own", u, by, name)
		}
		owner[u] = name
		i := slices.IndexFunc(members, func(m cluster.Member) bool { return m.Name == name })
		if i < 0 {
			i = len(members)
			members = append(members, cluster.Member{Name: name})
		}
		members[i].PeerURLs = append(members[i].PeerURLs, u)
	}
	if len(members) == 0 {
		return nil, fmt.Errorf("%q names no member: want NAME=URL,...", c.InitialCluster)
	}
	for i := range members {
		slices.Sort(members[i].PeerURLs)
	}
	return members, nil
}
