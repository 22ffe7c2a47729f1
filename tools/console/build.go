package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

// lock is third_party/lock.json: the packages from npm, and the digest of each of their files.
type lock struct {
	Packages []struct {
		Name, Version, License, Integrity string
		Files                             map[string]string // by path below third_party: SHA-256
	}
}

// checkLock compares the files of third_party with their digests.
func checkLock(root string) error {
	b, err := os.ReadFile(filepath.Join(root, "third_party", "lock.json"))
	if err != nil {
		return err
	}
	var l lock
	if err := json.Unmarshal(b, &l); err != nil {
		return fmt.Errorf("third_party/lock.json: %w", err)
	}
	known := map[string]bool{"lock.json": true}
	var errs []error
	for _, p := range l.Packages {
		for name, want := range p.Files {
			known[name] = true
			b, err := os.ReadFile(filepath.Join(root, "third_party", filepath.FromSlash(name)))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != want {
				errs = append(errs, fmt.Errorf("third_party/%s: the digest is %x and not %s of %s %s", name, sum, want, p.Name, p.Version))
			}
		}
	}
	err = filepath.WalkDir(filepath.Join(root, "third_party"),
		func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			if name, _ := filepath.Rel(filepath.Join(root, "third_party"),
				path); !known[filepath.ToSlash(name)] {
				errs = append(errs, fmt.Errorf("third_party/%s is not in lock.json", name))
			}
			return nil
		})
	return errors.Join(append(errs, err)...)
}

// build returns the files of the console by name: index.html, and a script and a style sheet whose
// names have their hashes.
func build(root string) (map[string][]byte, error) {
	if err := checkLock(root); err != nil {
		return nil, err
	}
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	preact := filepath.Join(abs, "third_party", "preact")
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: abs,
		EntryPoints:   []string{"src/main.tsx", "src/style.css"},
		EntryNames:    "[name]-[hash]",
		AssetNames:    "[name]-[hash]",
		Outdir:        filepath.Join(abs, "out"), // nothing is written there
		Bundle:        true,
		Format:        api.FormatIIFE,
		Target:        api.ES2022,
		Charset:       api.CharsetASCII,

		MinifyWhitespace: true, MinifyIdentifiers: true, MinifySyntax: true,
		// preact's licence is in third_party and in the file LICENSES.txt
		LegalComments:   api.LegalCommentsNone,
		JSX:             api.JSXAutomatic,
		JSXImportSource: "preact",
		Alias: map[string]string{
			"preact":             filepath.Join(preact, "dist", "preact.mjs"),
			"preact/hooks":       filepath.Join(preact, "hooks", "dist", "hooks.mjs"),
			"preact/jsx-runtime": filepath.Join(preact, "jsx-runtime", "dist", "jsxRuntime.mjs"),
		},
		TsconfigRaw: `{"compilerOptions":{"strict":true}}`,
		Loader:      map[string]api.Loader{".html": api.LoaderText},
	})
	if len(result.Errors) > 0 {
		return nil, errors.New(strings.Join(api.FormatMessages(result.Errors,
			api.FormatMessagesOptions{}), "\n"))
	}
	files := map[string][]byte{}
	var script, style string
	for _, f := range result.OutputFiles {
		name := filepath.Base(f.Path)
		files[name] = f.Contents
		switch filepath.Ext(name) {
		case ".js":
			script = name
		case ".css":
			style = name
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "src", "index.html"))
	if err != nil {
		return nil, err
	}
	page = bytes.ReplaceAll(page, []byte("{{script}}"), []byte(script))
	files["index.html"] = bytes.ReplaceAll(page, []byte("{{style}}"), []byte(style))
	licence, err := os.ReadFile(filepath.Join(root, "third_party", "preact", "LICENSE"))
	if err != nil {
		return nil, err
	}
	files["LICENSES.txt"] = append([]byte("The script contains Preact:\n\n"), licence...)
	return files, nil
}
