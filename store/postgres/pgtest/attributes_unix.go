//go:build unix && !linux

package pgtest

import "syscall"

func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true}
}
