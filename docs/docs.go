// Package docs holds the pages of this directory, which a member serves to those who look something
// up where there is no internet.
package docs

import "embed"

// Files are the pages and their pictures, by their paths below docs.
//
//go:embed *.md */*.md console/*.png compared/*.svg
var Files embed.FS
