//go:build unix && !linux

package pgtest

import "syscall"

func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true}
}

// children returns nil: only Linux lists child processes.
func children(int) []int { return nil }
