package doctor

import (
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"vigil/cmd/vigilctl/survey"
)

func (e *examination) checkReachable(report reportFunc) {
	for i := range e.Readings {
		x := &e.Readings[i]
		switch {
		case x.StatusErr != nil:
			report(critical, x.Endpoint, "does not answer: "+survey.ErrorLine(x.StatusErr),
				"check its process and its log; if it runs, check that this machine can reach the address")
		case x.MetricsErr != nil:
			report(note, e.NameOf(x), "its metrics cannot be read, so some checks were skipped: "+survey.ErrorLine(x.MetricsErr),
				"allow this machine to read /metrics on the client port")
		}
	}
	for _, m := range e.Members {
		if m.Name == "" {
			report(warning, fmt.Sprintf("%x", m.ID), "was added and never started", "start it with --initial-cluster-state existing, or remove it: vigilctl member remove "+fmt.Sprintf("%x", m.ID))
		} else if !e.asked(m.ID) && !e.anyDown() {
			report(note, m.Name, "was not checked: it is not among the endpoints", "give --cluster, or add "+strings.Join(m.ClientURLs, ",")+" to --endpoints")
		}
	}
	if e.Members == nil && e.ListErr != nil {
		report(warning, "", "the list of members is not known: "+survey.ErrorLine(e.ListErr), "give --user if authentication is enabled")
	}
}

func (e *examination) asked(id uint64) bool {
	for i := range e.Readings {
		if e.Readings[i].ID() == id {
			return true
		}
	}
	return false
}

// anyDown reports whether any endpoint does not answer: a member that is not seen may be the one at this endpoint.
func (e *examination) anyDown() bool {
	for i := range e.Readings {
		if e.Readings[i].Status == nil {
			return true
		}
	}
	return false
}

func (e *examination) checkLeader(report reportFunc) {
	leader, clusters := e.Leader(), map[uint64]string{}
	for i := range e.Readings {
		x := &e.Readings[i]
		if x.Status == nil {
			continue
		}
		if id := x.Status.Header.ClusterId; len(clusters) > 0 && clusters[id] == "" {
			report(critical, e.NameOf(x), fmt.Sprintf("belongs to another cluster, %x", id), "give endpoints of one cluster; the other checks compare members of several")
		}
		clusters[x.Status.Header.ClusterId] = x.Endpoint
		switch {
		case x.Status.Leader == 0:
			report(critical, e.NameOf(x), "has no leader: it accepts no writes", "check that a majority of members runs, and that they can reach each other on their peer ports")
		case x.Status.Leader != leader:
			report(warning, e.NameOf(x), "follows another leader than the others: "+e.Name(x.Status.Leader), "run doctor again; if it persists, check whether the member is partitioned")
		}
	}
}

func (e *examination) checkQuorum(report reportFunc) {
	voters, answering := 0, 0
	for _, m := range e.Members {
		if m.IsLearner {
			continue
		}
		voters++
		if e.asked(m.ID) {
			answering++
		}
	}
	need := voters/2 + 1
	switch {
	case voters == 0:
		return
	case voters == 1:
		report(note, "", "the cluster has one member: if it is lost, all writes since the last backup are lost", "add two members, or make backups: vigilctl snapshot save")
	case e.anyDown() && answering < need:
		report(critical, "", fmt.Sprintf("%d of %d voting members answer and %d are needed: no write is possible", answering, voters, need), "start a member again; restore a backup only if it is lost for good")
	case e.anyDown() && answering == need:
		report(critical, "", fmt.Sprintf("%d of %d voting members answer, the smallest quorum: one more failure stops all writes", answering, voters), "start the other members again first")
	case voters%2 == 0:
		report(note, "", fmt.Sprintf("%d voting members survive no more failures than %d", voters, voters-1), "add or remove one")
	}
}

func (e *examination) checkAlarms(report reportFunc) {
	next := map[etcdserverpb.AlarmType]string{
		etcdserverpb.AlarmType_NOSPACE: "delete unneeded keys, then: vigilctl compaction REVISION; with etcd also: vigilctl defrag, vigilctl alarm disarm; or start the members with a higher --quota-backend-bytes",
		etcdserverpb.AlarmType_CORRUPT: "its data differ from those of the other members: remove the member, delete its data directory and add it again",
	}
	for _, a := range e.Alarms {
		report(critical, e.Name(a.MemberID), "alarm "+a.Alarm.String(), next[a.Alarm])
	}
	for i := range e.Readings {
		x := &e.Readings[i]
		for _, text := range x.Status.GetErrors() {
			if e.Alarms == nil {
				report(critical, e.NameOf(x), text, "see its log")
			}
		}
	}
}

func (e *examination) checkVersions(report reportFunc) {
	seen := map[string][]string{}
	for i := range e.Readings {
		if x := &e.Readings[i]; x.Status != nil {
			seen[x.Status.Version] = append(seen[x.Status.Version], e.NameOf(x))
			if d := x.Status.DowngradeInfo; d.GetEnabled() {
				report(note, e.NameOf(x), "a downgrade to "+d.TargetVersion+" is in progress", "finish it, or: vigilctl downgrade cancel")
			}
		}
	}
	if len(seen) > 1 {
		var list []string
		for v, names := range seen {
			list = append(list, strings.Join(names, ", ")+": "+v)
		}
		report(warning, "", "members have different versions: "+sorted(list), "finish the upgrade: one member after the other")
	}
}
