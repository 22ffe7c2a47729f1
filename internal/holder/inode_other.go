//go:build !linux

package holder

import "io/fs"

func identityOf(fs.FileInfo) (device, inode string, ok bool) { return "", "", false }
