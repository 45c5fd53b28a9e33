package measure

import (
	"runtime"
	"syscall"
	"time"
)

// Processor returns the processor time of this process so far, including the kernel's work for it.
func Processor() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

const collections = 15

// Collection returns the processor time of one garbage collection without garbage, in the best of
// some rounds. This is the cost of marking everything reachable, with all other work of the
// collector. Nothing else may run in this process. The runtime's own figures are not used: they
// include time in which other processes had the processor.
func Collection() (time.Duration, error) {
	runtime.GC()
	best := time.Duration(0)
	for i := range collections {
		before, err := Processor()
		if err != nil {
			return 0, err
		}
		runtime.GC()
		after, err := Processor()
		if err != nil {
			return 0, err
		}
		if took := after - before; i == 0 || took < best {
			best = took
		}
	}
	return best, nil
}
