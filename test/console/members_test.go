package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cdp "github.com/chromedp/cdproto/browser"
	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// TestMembers changes a real cluster: a new member joins as a learner, is promoted, leads, and is
// removed. Each action says before what it will do.
func TestMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	chromium(t)
	members, names := initial(t)
	port := proc.FreePort(t)
	peer := fmt.Sprintf("http://127.0.0.1:%d", port)
	join := proc.New(t, proc.Config{Program: proc.Vigil, Name: "m4", Memory: true, PeerPort: port,
		InitialCluster: names + ",m4=" + peer, Args: []string{"--initial-cluster-state=existing"}})
	c := connect(t, members[0], "")
	fillStore(t, c)
	newest := put(t, c, "config/app", "newest")
	b := newBrowser(t, "http://"+leader(t, members).Addr())
	b.other = "http://" + members[0].Addr() + "/console/"
	// said waits for a dialog with texts.
	said := func(view string, texts ...string) {
		t.Helper()
		b.until(`document.querySelector("dialog[open]")`)
		for _, text := range texts {
			b.until(fmt.Sprintf(`document.querySelector("dialog[open]").innerText.includes(%q)`,
				text))
		}
		b.accessible(view)
	}
	over := func() { t.Helper(); b.until(`!document.querySelector("dialog[open]")`) }

	b.open("members")
	b.shows("3 of 3 voting members answer")
	b.click("Add a member…")
	said("adding", "as a learner, which does not vote", "The quorum stays the same")
	b.fill("Peer URLs", peer)
	// A cluster whose members are connected for less than 5 s adds none: the dialog says so, and
	// the reader tries again.
	for end := time.Now().Add(patience); !strings.Contains(b.text(), "Added with the ID"); {
		if time.Now().After(end) {
			t.Fatalf("no member is added\npage:\n%s", b.text())
		}
		b.click("Add")
		b.until(`!document.querySelector("dialog[open] button.primary").disabled || document.body.innerText.includes("Added with the ID")`)
	}
	b.shows("Added with the ID", "--initial-cluster-state existing", "NAME="+peer)
	b.accessible("added")
	b.click("Close")
	b.shows("not started yet")
	join.Launch()
	b.shows("m4", "learner")
	join.Ready()

	b.click("promote m4")
	said("promotion", "It becomes a voting member, when it has nearly caught up; the quorum grows from 2 to 3")
	b.click("Promote")
	// A learner that has not caught up is not promoted: the dialog says so, and the reader tries
	// again.
	b.until(`!document.querySelector("dialog[open]") || document.querySelector("dialog[open] [role=alert]")`)
	for end := time.Now().Add(patience); strings.Contains(b.text(), "in sync with leader"); {
		if time.Now().After(end) {
			t.Fatal("the learner does not catch up")
		}
		b.click("Promote")
		b.until(`!document.querySelector("dialog[open] button.danger:disabled")`)
	}
	over()
	b.shows("4 of 4 voting members answer")
	if list, err := c.MemberList(t.Context()); err != nil || len(list.Members) != 4 ||
		list.Members[3].IsLearner {
		t.Fatalf("%v, %v", list, err)
	}

	b.click("lead with m4")
	said("moving the leader", "hands over to m4. Writes wait for a moment")
	b.click("Move the leader")
	over()
	b.until(`[...document.querySelectorAll("main tbody tr")].some((r) => r.innerText.includes("m4") && r.innerText.includes("leader"))`)
	// Only the leader can hand over: another member says so, and where.
	b.click("lead with m1")
	said("moving from elsewhere", "Only the leader can hand over: open the console of m4",
		"http://"+join.Addr()+"/console/")
	b.until(`document.querySelector("dialog[open] button.danger").disabled`)
	b.click("Cancel")

	dir := t.TempDir()
	call(b, cdp.SetDownloadBehavior,
		cdp.SetDownloadBehaviorParams{Behavior: cdp.SetDownloadBehaviorBehaviorAllow,
			DownloadPath: dir})
	b.click("Download a snapshot…")
	said("snapshot", "sends all keys, leases, users and roles as of now",
		"keep it as safe as the store")
	b.click("Download")
	file := filepath.Join(dir, "snapshot.db")
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(file); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("no file\npage:\n%s", b.text())
		}
	}
	if r := proc.Run(t, patience,
		proc.Spec{Name: proc.Path(t, proc.Vigilctl),
			Args: []string{"snapshot", "status", file, "-w", "json"}}); r.Code != 0 ||
		!strings.Contains(r.Stdout, fmt.Sprintf(`"revision":%d`, newest)) {
		t.Errorf("the snapshot at revision %d: %+v", newest, r)
	}

	b.click("Defragment this member…")
	said("defragmentation", "reclaims space now instead of in the background. It keeps serving")
	b.click("Defragment")
	over()

	b.click("Compact…")
	said("compaction", "can no longer be read", "The keys of today stay")
	// Nothing is proposed; what a revision or a time ends is said before.
	for _, x := range []struct{ since, shows string }{{"", ""}, {"0", ""},
		{"1", "1 revision of history end"}, {fmt.Sprint(newest - 1), "of history end, 1 stay"},
		{"10:", "write a number, or a time"}, {"0s", "This ends all history"},
		{fmt.Sprint(newest), "This ends all history"}} {
		b.fill("Keep the history since", x.since)
		b.shows(x.shows)
		b.until(fmt.Sprintf(`document.querySelector("dialog[open] button.danger").disabled === %v`,
			x.shows == "" || x.since == "10:"))
	}
	b.click(fmt.Sprintf("Compact to %d", newest))
	over()
	if _, err := c.Get(t.Context(), "config/app", clientv3.WithRev(newest-1)); err == nil ||
		!strings.Contains(err.Error(), "compacted") {
		t.Errorf("a compacted revision is read: %v", err)
	}

	b.click("remove m4")
	said("removal", "leaves the cluster for good",
		"3 voting members remain, of which 3 answer; 2 must, for writes")
	b.until(`document.querySelector("dialog[open] button.danger").disabled`)
	b.fill("Type", "m4")
	b.click("Remove the member")
	over()
	b.shows("3 of 3 voting members answer")
	join.Wait()

	// A member that does not answer has its name still, and its removal says what remains.
	b.url = "http://" + members[0].Addr()
	b.open("members")
	b.shows("3 of 3 voting members answer")
	name := "m3"
	members[2].Kill()
	b.shows("2 of 3 voting members answer", name)
	b.click("remove " + name)
	said("removal of a dead member", name+" leaves the cluster for good",
		"2 voting members remain, of which 2 answer; 2 must, for writes")
	b.click("Cancel")
	b.open("watches")
	b.shows("The watchers of " + name + " are not known")
	b.open("overview")
	b.shows(name+": does not answer this member", "2 of 3 members answer")
	b.check()
}

// leader returns the member that leads.
func leader(t *testing.T, members []*proc.Server) *proc.Server {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		for _, m := range members {
			c := connect(t, m, "")
			st, err := c.Status(t.Context(), "http://"+m.Addr())
			c.Close()
			if err == nil && st.Leader == st.Header.MemberId {
				return m
			}
		}
	}
	t.Fatal("no member leads")
	return nil
}
