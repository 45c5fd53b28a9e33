package pgtest

import "syscall"

// attributes start a process that ends with the test, whatever becomes of that.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}
