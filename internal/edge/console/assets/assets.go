// Package assets has the built pages of the console, which make console writes.
package assets

import "embed"

// Files are the page, the script, the style sheet and the licences.
//
//go:embed index.html *.js *.css LICENSES.txt
var Files embed.FS
