package console

import (
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"vigil/test/proc"
)

// enableAuth adds the user root, and alice who may read config/, and enables authentication.
func enableAuth(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	for _, do := range []func() error{
		func() error { _, err := c.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := c.RoleAdd(ctx, "reader"); return err },
		func() error {
			_, err := c.RoleGrantPermission(ctx, "reader", "config/", "config0",
				clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		func() error { _, err := c.UserAdd(ctx, "alice", "secret"); return err },
		func() error { _, err := c.UserGrantRole(ctx, "alice", "reader"); return err },
		func() error { _, err := c.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestUsers(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true})
	c := connect(t, m, "")
	put(t, c, "config/app", "visible")
	put(t, c, "secret/key", "hidden")
	enableAuth(t, c)
	b := newBrowser(t, "http://"+m.Addr())

	login := func(name, password string) {
		b.fill("User", name)
		b.fill("Password", password)
		b.click("Log in")
	}
	b.open("keys")
	b.shows("Log in")
	b.accessible("login")
	b.screenshot("login")
	login("alice", "wrong")
	b.shows("check the name and the password")
	login("alice", "secret")
	b.shows("You may read these ranges")
	b.click("config/*")
	b.click("config/app")
	b.shows("visible")
	b.open("keys?k=secret/key")
	b.shows("permission denied")
	b.open("keys?prefix=secret/")
	b.shows("permission denied")
	b.open("watches")
	b.shows("root only")
	b.open("watches?tail=secret/")
	b.shows("permission denied")
	b.open("access")
	b.shows("permission denied", "Your permissions", "config/*: read")
	b.accessible("access without permission")
	b.open("keys?k=config/app")
	b.click("Edit")
	b.fill("Value", "changed")
	b.click("Write")
	b.shows("permission denied")

	if cookies := eval[string](b, "document.cookie"); cookies != "" {
		t.Errorf("scripts see the cookies %q", cookies)
	}
	// A token that is not valid any more, here after a change of the password: the page asks for a
	// login at the next call.
	b.open("access")
	b.shows("permission denied")
	admin := connect(t, m, "root")
	if _, err := admin.UserChangePassword(t.Context(), "alice", "other"); err != nil {
		t.Fatal(err)
	}
	b.click("Keys")
	b.click("config/*")
	b.shows("The session has expired", "Log in")
	login("root", "secret")
	b.shows("1 key") // the page that asked for the login
	b.open("keys")
	b.shows("secret/")
	b.open("access")
	b.fill("Key", "config/app")
	b.click("Who may read it?")
	b.shows("Users that may read or write the key")
	b.open("watches")
	b.shows("Watches")
	b.open("keys")
	b.click("Log out")
	b.shows("Password")
	b.open("keys")
	b.shows("Password")
	b.check()
}

// TestExpiredToken: a page whose token has expired asks for a login at its next call, and continues
// where it was.
func TestExpiredToken(t *testing.T) {
	chromium(t)
	m := proc.Start(t, proc.Config{Program: proc.Vigil, Memory: true,
		Args: []string{"--auth-token-ttl=2"}})
	c := connect(t, m, "")
	put(t, c, "config/app", "visible")
	enableAuth(t, c)
	b := newBrowser(t, "http://"+m.Addr())
	// see logs in, again if the token expires before the key is shown, which a busy machine may
	// need.
	see := func() {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			b.until(`document.body.innerText.includes("Log in") || document.body.innerText.includes("visible")`)
			if strings.Contains(b.text(), "visible") {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("no session:\n%s", b.text())
			}
			b.fill("User", "alice")
			b.fill("Password", "secret")
			b.click("Log in")
			b.until(`!document.querySelector(".login")`)
		}
	}
	b.open("keys?k=config/app")
	see()
	for end := time.Now().Add(patience); !strings.Contains(b.text(), "The session has expired"); {
		if time.Now().After(end) {
			t.Fatal("the token does not expire")
		}
		time.Sleep(4 * time.Second) // each use makes a token valid for longer
		b.click("History")
		b.until(`document.body.innerText.includes("Log in") || document.body.innerText.includes("History of")`)
		if strings.Contains(b.text(), "History of") {
			b.open("keys?k=config/app")
			b.until(`document.body.innerText.includes("Log in") || document.body.innerText.includes("visible")`)
		}
	}
	b.accessible("expired")
	b.open("keys?k=config/app")
	see()
	b.check()
}
