//go:build !linux

package serverprocess

import "syscall"

func endsWithParent() *syscall.SysProcAttr { return nil }
