package server

import (
	"fmt"
	"slices"
	"strings"

	"vigil/internal/state/cluster"
)

// compareRecord compares --name and --initial-advertise-peer-urls with the members recorded in the
// data directory. Both may change: the member publishes a new name, and new URLs have no effect.
// But it refuses a start with the name and the URLs of another member: this member would publish
// that name a second time, and others would look for it at another address.
func (m *Member) compareRecord(self cluster.Member, members []cluster.Member) error {
	c := &m.cfg
	given := spelled(c.InitialAdvertisePeerURLs)
	isAt := func(x cluster.Member) bool { return slices.Equal(spelled(x.PeerURLs), given) }
	// The default name proves nothing: a restart does not need the flags about the cluster.
	named := func(x cluster.Member) bool {
		return x.ID != self.ID && x.Name == c.Name &&
			c.Name != defaultName
	}
	recorded, asked := strings.Join(self.PeerURLs, ","),
		strings.Join(c.InitialAdvertisePeerURLs, ",")
	there := slices.IndexFunc(members,
		func(x cluster.Member) bool { return x.ID != self.ID && isAt(x) })
	switch {
	case isAt(self):
	case there >= 0 && named(members[there]) && self.Name != c.Name:
		own, otherwise := "a member without a name", "its own --name"
		if self.Name != "" {
			own, otherwise = "member "+self.Name, "--name="+self.Name
		}
		return configError(fmt.Errorf("data directory %s belongs to %s (%x, %s), and --name=%s "+
			"with --initial-advertise-peer-urls=%s is member %x: "+
			"the data directories of the two are swapped; start each member with its own "+
			"--data-dir. Only if the data are at the right place, start it with %s",
			c.DataDir, own, self.ID, recorded, c.Name, asked, members[there].ID, otherwise))
	case there >= 0:
		m.log.Error("the peer URLs given are those of another member: if the data directories of "+
			"the two are swapped, start each with its own --data-dir; "+
			"if this member has moved, run `etcdctl member update` for both",
			"data-dir", c.DataDir, hexID("member-id", self.ID), "name", self.Name,
			"recorded-peer-urls", recorded,
			"initial-advertise-peer-urls", asked, hexID("other-member-id", members[there].ID),
			"other-name", members[there].Name)
	default:
		m.log.Warn("--initial-advertise-peer-urls has no effect on a member with data, and others reach this one at the recorded URLs: to change them, run `etcdctl member update`",
			hexID("member-id", self.ID), "recorded-peer-urls", recorded,
			"initial-advertise-peer-urls", asked)
	}
	switch {
	case self.Name == "" || self.Name == c.Name:
	case slices.ContainsFunc(members, named):
		m.log.Error("--name is the name of another member, and two will have it: start this one "+
			"with its own name, or with the --data-dir that belongs to the name",
			"data-dir", c.DataDir, hexID("member-id", self.ID), "recorded-name", self.Name,
			"name", c.Name)
	default:
		m.log.Warn("--name differs from the name of the member in the data directory, and "+
			"replaces it in the list of members; if it is a mistake, check --data-dir too",
			"data-dir", c.DataDir, hexID("member-id", self.ID), "recorded-name", self.Name,
			"name", c.Name)
	}
	return nil
}
