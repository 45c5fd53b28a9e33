package measure

import (
	"runtime"
	"syscall"
	"time"
)

// Processor returns what this process took of the processor so far, what the kernel did for it included.
func Processor() (time.Duration, error) {
	var usage syscall.Rusage
	err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()), err
}

const collections = 15

// Collection returns what a collection of the garbage, of which there is none, takes of the processor in the best of some rounds:
// what marking all that is reachable costs, with everything that the collector does beside. Nobody else may be at work in this process.
// The runtime's own figures count the time in which other processes had the processor.
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
