package pgtest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// attributes make a process end with the test, however the test ends.
func attributes(as *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: as, Setpgid: true, Pdeathsig: syscall.SIGQUIT}
}

// memory returns a file system in memory with room for servers, or "". Tests kill servers and not
// the machine, so none needs a disk: there, the files of a cluster take half of a test's time.
func memory() string {
	const shared, room = "/dev/shm", 4 << 30
	var stat syscall.Statfs_t
	if syscall.Statfs(shared, &stat) != nil || stat.Bavail*uint64(stat.Bsize) < room {
		return ""
	}
	return shared
}

// children returns the running processes that a process has started.
func children(pid int) (pids []int) {
	// The file of an ended process does not exist.
	listed, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for field := range strings.FieldsSeq(string(listed)) {
		if child, err := strconv.Atoi(field); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}
