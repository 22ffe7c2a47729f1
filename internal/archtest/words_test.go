package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// privateWords hide the subject of a sentence, or replace a standard verb or preposition. Comments and documents
// name the subject and use: report, log, notify, return; next to, concurrently with.
var privateWords = regexp.MustCompile(`(?i)\b(told|tells?|nobody|beside|whoever|what\s+waits)\b`)

// maxPrivateWords bounds their number in the comments of all Go files and in all Markdown files. It only falls.
const maxPrivateWords = 20

func TestPrivateWords(t *testing.T) {
	const root = "../.."
	places := map[string]int{}
	total := 0
	count := func(path, text string) {
		if n := len(privateWords.FindAllString(text, -1)); n > 0 {
			places[path] += n
			total += n
		}
	}
	err := filepath.WalkDir(root, func(abs string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if abs != root && (strings.HasPrefix(d.Name(), ".") || slices.Contains([]string{"testdata", "bin", "node_modules"}, d.Name())) {
				return filepath.SkipDir
			}
			return nil
		}
		path, err := filepath.Rel(root, abs)
		if err != nil {
			return err
		}
		switch filepath.Ext(path) {
		case ".md":
			text, err := os.ReadFile(abs)
			if err != nil {
				return err
			}
			count(path, string(text))
		case ".go":
			file, err := parser.ParseFile(token.NewFileSet(), abs, nil, parser.ParseComments)
			if err != nil {
				return err
			}
			for _, c := range file.Comments {
				count(path, c.Text())
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d private words in %d files", total, len(places))
	if total <= maxPrivateWords {
		return
	}
	files := slices.SortedFunc(maps.Keys(places), func(a, b string) int { return places[b] - places[a] })
	var list strings.Builder
	for _, f := range files[:min(20, len(files))] {
		fmt.Fprintf(&list, "\n%4d %s", places[f], f)
	}
	t.Errorf("%d of the words %s in comments and documents, at most %d; most are in:%s", total, privateWords, maxPrivateWords, list.String())
}
