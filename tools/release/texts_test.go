package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// TestManual: each command has a page with all its flags, and man formats the pages without a
// warning.
func TestManual(t *testing.T) {
	r, _ := sharedRelease(t)
	pages := r.manual.pages(r.version, r.source.time)
	if len(pages) != len(r.manual.commands)+1 || len(pages) < 60 {
		t.Errorf("%d pages for %d commands", len(pages), len(r.manual.commands))
	}
	for _, want := range []string{"vigil.8", "vigilctl.1", "vigilctl-put.1",
		"vigilctl-member-add.1", "vigilctl-snapshot-restore.1"} {
		if pages[want] == nil {
			t.Errorf("no page %s", want)
		}
	}
	for _, o := range options(r.manual.vigil) {
		if !bytes.Contains(pages["vigil.8"], []byte(`\fB`+roff("--"+o.name))) {
			t.Errorf("vigil(8) has no --%s", o.name)
		}
	}
	for name, want := range map[string]string{"vigilctl.1": "--endpoints",
		"vigilctl-member-add.1": "--peer-urls", "vigilctl-put.1": "--prev-kv"} {
		if !bytes.Contains(pages[name], []byte(roff(want))) {
			t.Errorf("%s has no %s:\n%s", name, want, pages[name])
		}
	}
	inFull(t)
	need(t, "man")
	dir := t.TempDir()
	for _, name := range []string{"vigil.8", "vigilctl.1", "vigilctl-put.1",
		"vigilctl-member-add.1"} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pages[name], 0o644); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("man", "--warnings=w", "-l", file)
		cmd.Env = append(os.Environ(), "MANWIDTH=200", "LC_ALL=C.UTF-8")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		if _, err := cmd.Output(); err != nil || stderr.Len() > 0 {
			t.Errorf("man %s: %v\n%s", name, err, stderr.String())
		}
	}
}

// TestCompletions: bash completes the flags of vigil, and reads the script of vigilctl.
func TestCompletions(t *testing.T) {
	r, _ := sharedRelease(t)
	need(t, "bash")
	if len(options(r.manual.vigil)) < 100 {
		t.Errorf("the help of vigil has %d flags", len(options(r.manual.vigil)))
	}
	dir := t.TempDir()
	for name, script := range map[string][]byte{"vigil": completeVigil(r.manual.vigil)["bash"],
		"vigilctl": r.manual.completions["bash"]} {
		if err := os.WriteFile(filepath.Join(dir, name), script, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got := runProgram(t, "bash", "-ec", `cd "$0"; . ./vigil; . ./vigilctl; complete -p vigilctl >/dev/null
		COMP_WORDS=(vigil --listen-cl); COMP_CWORD=1; _vigil; echo "${COMPREPLY[@]}"`, dir)
	if got != "--listen-client-urls --listen-client-http-urls\n" {
		t.Errorf("--listen-cl completes to %q", got)
	}
}

// TestSBOM: the list of parts has the modules of the programs, each with a licence.
func TestSBOM(t *testing.T) {
	r, out := sharedRelease(t)
	for _, d := range r.products() {
		testSBOM(t, r, d, out)
	}
}

func testSBOM(t *testing.T, r *release, d *product, out string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, d.name+"-"+testVersion+".cdx.json"))
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(b),
		cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	got := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		got[c.Name+"@"+c.Version] = c
	}
	for _, name := range d.on(r.platforms[0]) {
		for _, line := range strings.Split(runProgram(t, "go", "version", "-m",
			r.program(r.platforms[0], name)), "\n") {
			f := strings.Split(line, "\t")
			if len(f) < 5 || f[1] != "dep" || strings.HasPrefix(f[2], r.source.module+"/") {
				continue
			}
			c, ok := got[f[2]+"@"+f[3]]
			if !ok || c.Hashes == nil || c.Licenses == nil || (*c.Licenses)[0].Expression == "" {
				t.Errorf("%s@%s: %+v", f[2], f[3], c)
			}
		}
	}
	if len(got) < 30 || bom.Metadata.Component.Name != d.name ||
		bom.Metadata.Component.Version != testVersion {
		t.Errorf("%d parts, %+v", len(got), bom.Metadata.Component)
	}
	const raft = "go.etcd.io/raft/v3"
	if d == r.servers &&
		!slices.Contains(*(*bom.Dependencies)[0].Dependencies,
			"pkg:golang/"+raft+"@"+version(got, raft)) {
		t.Errorf("%s is missing", raft)
	}
}

func version(parts map[string]cdx.Component, name string) string {
	for _, c := range parts {
		if c.Name == name {
			return c.Version
		}
	}
	return ""
}

func TestIdentify(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                                                                "Apache-2.0",
		"Permission is hereby granted, free of charge,\nto any person obtaining a copy":                               "MIT",
		"provided that the following conditions are met: ... may be used to endorse or promote products derived from": "BSD-3-Clause",
		"provided that the following conditions are met":                                                              "BSD-2-Clause",
		"Copyright 2026 somebody. All rights reserved.":                                                               "",
	} {
		if got := strings.Join(identify(text), " "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestMistakes: each mistake is one line that says what to do, and exit code 2. Nothing is written.
func TestMistakes(t *testing.T) {
	need(t, "git")
	clean, none, tools := t.TempDir(), t.TempDir(), t.TempDir()
	repository := func(dir string) {
		if err := os.WriteFile(filepath.Join(dir, "go.mod"),
			[]byte("module example.com/m\n\ngo 1.26\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"init", "-q"}, {"add", "-A"},
			{"-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "first"}} {
			runProgram(t, "git", append([]string{"-C", dir}, args...)...)
		}
	}
	repository(clean)
	dirty := t.TempDir()
	repository(dirty)
	if err := os.WriteFile(filepath.Join(dirty, "new.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(git, filepath.Join(tools, "git")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir, path string
		args      []string
		want      string
	}{
		{clean, "", nil, "no version is given: make release VERSION=1.2.3"},
		{clean, "", []string{"-version", ""}, "no version is given"},
		{clean, "", []string{"-version", "v1.2.3"},
			`version "v1.2.3": leave out the v: VERSION=1.2.3`},
		{clean, "", []string{"-version", "1.2"}, `version "1.2" is not like 1.2.3 or 1.2.3-rc.1`},
		{clean, "", []string{"-version", "1.02.3"}, "is not like"},
		{clean, "", []string{"-version", "1.2.3+5"}, "is not like"},
		{clean, "", []string{"-version", "1.2.3-rc_1"}, "is not like"},
		{clean, "", []string{"-version", "../1.2.3"}, "is not like"},
		{clean, "", []string{"-version", "1.2.3 -X"}, "is not like"},
		{clean, "", []string{"-version", "1.2.3", "more"}, `unexpected argument "more"`},
		{clean, "", []string{"-platform", "linux/amd46"},
			`there are no programs for platform "linux/amd46": choose from linux/amd64, linux/arm64, darwin/amd64, darwin/arm64`},
		{clean, "", []string{"-platform", "linux/amd64,"}, `there are no programs for platform ""`},
		{clean, "", []string{"-platform", "linux/amd64", "-version", "v1"}, "is not like"},
		{clean, "", []string{"-verison", "1.2.3"},
			"flag provided but not defined: -verison; release -help lists the flags"},
		{dirty, "", []string{"-version", "1.2.3"}, "1 files differ from commit"},
		{dirty, "", []string{"-version", "1.2.3"},
			"the first is new.go: commit, stash or remove them"},
		{none, "", []string{"-version", "1.2.3"},
			"a release needs a clone of the repository by git"},
		{clean, none, []string{"-version", "1.2.3"}, "the program git is missing"},
		{clean, tools, []string{"-version", "1.2.3"}, "the program go is missing"},
	} {
		t.Run(strings.Join(c.args, " ")+" "+c.want, func(t *testing.T) {
			t.Chdir(c.dir)
			if c.path != "" {
				t.Setenv("PATH", c.path)
			}
			var stdout, stderr bytes.Buffer
			code := run(context.Background(), c.args, &stdout, &stderr)
			if line := stderr.String(); code != 2 || !strings.HasPrefix(line, "release: ") ||
				strings.Count(line, "\n") != 1 || !strings.Contains(line, c.want) ||
				stdout.Len() > 0 {
				t.Errorf("exit code %d, %q%q, want 2 and %q", code, stdout.String(), line, c.want)
			}
			if _, err := os.Stat("dist"); err == nil {
				t.Error("dist was written")
			}
		})
	}
}

// TestPlatforms: a list has each platform once, and without a version the sources name it.
func TestPlatforms(t *testing.T) {
	for list, want := range map[string]int{"": len(everyPlatform), "linux/arm64": 1,
		"linux/amd64,darwin/arm64,linux/amd64": 2} {
		if got, err := parsePlatforms(list); err != nil || len(got) != want {
			t.Errorf("%q: %v %v", list, got, err)
		}
	}
	src, err := openSource(context.Background(), ".")
	if err != nil {
		t.Fatal(err)
	}
	if v, err := src.version(); err != nil || checkVersion(v) != nil {
		t.Errorf("the sources name version %q, %v", v, err)
	}
}

// TestCheckVersion accepts what a version may be.
func TestCheckVersion(t *testing.T) {
	for _, v := range []string{"0.1.0", "1.2.3", "10.20.30", "1.2.3-rc.1", "1.2.3-alpha"} {
		if err := checkVersion(v); err != nil {
			t.Errorf("%s: %v", v, err)
		}
	}
}
