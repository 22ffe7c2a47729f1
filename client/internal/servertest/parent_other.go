//go:build !linux

package servertest

import "syscall"

func endsWithParent() *syscall.SysProcAttr { return nil }
