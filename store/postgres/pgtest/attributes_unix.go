//go:build unix && !linux

package pgtest

import "syscall"

func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true}
}

// children returns nil: only Linux lists child processes.
func children(int) []int { return nil }

// memory returns "", for the usual directory: only Linux has one that is always in memory.
func memory() string { return "" }
