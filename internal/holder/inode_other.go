//go:build !unix

package holder

import "io/fs"

func inodeOf(fs.FileInfo) (string, bool) { return "", false }
