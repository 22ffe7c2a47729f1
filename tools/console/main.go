// Command console builds the pages of the console from console/src and console/third_party into
// internal/edge/console/assets, from where the server embeds them. Run it with make console. The
// same sources make the same bytes.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// sources is the directory of the sources, from tools, where the program runs.
var sources = filepath.Join("..", "console")

func main() {
	if err := write(sources,
		filepath.Join("..", "internal", "edge", "console", "assets")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// write replaces the built files in a directory.
func write(root, dir string) error {
	files, err := build(root)
	if err != nil {
		return err
	}
	old, err := built(dir)
	if err != nil {
		return err
	}
	for name := range old {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// built returns the built files of a directory.
func built(dir string) (map[string][]byte, error) {
	files := map[string][]byte{}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, f := range list {
		if filepath.Ext(f.Name()) == ".go" {
			continue
		}
		if files[f.Name()], err = os.ReadFile(filepath.Join(dir, f.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}
