//go:build unix

package adminpage_test

import (
	"syscall"
	"time"
)

// cpuTime returns the time that processors have spent on this process outside of the kernel.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano())
}
