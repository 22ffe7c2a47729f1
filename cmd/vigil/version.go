package main

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"

	"vigil/internal/release"
)

// printVersion prints the version of the program and of its source. Programs parse the lines that
// etcd prints too: "etcd Version", "Git SHA", "Go Version" and "Go OS/Arch".
func printVersion(w io.Writer, format string) error {
	commit, tree := release.Source()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	if format == "json" {
		return json.NewEncoder(w).Encode(struct {
			Vigil    string `json:"vigil"`
			Etcd     string `json:"etcd"`
			Commit   string `json:"commit"`
			Tree     string `json:"tree"`
			Go       string `json:"go"`
			Platform string `json:"platform"`
		}{release.Version, release.APIVersion, commit, tree, runtime.Version(), platform})
	}
	_, err := fmt.Fprintf(w, "Vigil Version: %s\netcd Version: %s\nGit SHA: %s\nGit Tree: %s\n"+
		"Go Version: %s\nGo OS/Arch: %s\n",
		release.Version, release.APIVersion, commit, tree, runtime.Version(), platform)
	return err
}
