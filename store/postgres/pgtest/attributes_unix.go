//go:build unix && !linux

package pgtest

import "syscall"

func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true}
}

// children are known on Linux alone.
func children(int) []int { return nil }
