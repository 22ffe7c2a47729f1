// Command site renders the Markdown files of the repository as HTML pages, with working links between them.
//
//	go run . -out DIR
//
// A linked file that is not Markdown is copied as NAME.txt, and a linked folder gets a list of its files.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	root := flag.String("root", "../..", "the repository")
	out := flag.String("out", "", "the folder of the pages")
	flag.Parse()
	if *out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "site: give -out DIR")
		os.Exit(2)
	}
	n, err := render(*root, *out)
	if err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
	fmt.Printf("%d pages; begin with %s/index.html\n", n, *out)
}
