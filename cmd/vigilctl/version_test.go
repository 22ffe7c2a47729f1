package main

import (
	"encoding/json"
	"regexp"
	"testing"
)

func TestVersion(t *testing.T) {
	code, out, _ := vigilctl("version")
	if want := regexp.MustCompile(`^etcdctl version: 3\.7\.\d+\nAPI version: 3\.7\nvigilctl version: \S+\n` +
		`Git SHA: \S+\nGit Tree: (clean|modified|unknown)\n$`); code != 0 ||
		!want.MatchString(out) {
		t.Errorf("%d %s", code, out)
	}
	code, out, _ = vigilctl("version", "-w", "json")
	var v map[string]string
	if err := json.Unmarshal([]byte(out), &v); code != 0 || err != nil || v["vigilctl"] == "" ||
		v["commit"] == "" || v["tree"] == "" || v["api"] != "3.7" {
		t.Errorf("%d %s %v", code, out, err)
	}
}
