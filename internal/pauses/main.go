//go:build linux

// Pauses runs a test program on a machine that stops: at random moments, drawn by a seed, the
// program and all processes that it has started stand still for some seconds, while clocks go on.
// It finds tests that time decides. The go command runs test programs through it:
//
//	go build -o /tmp/pauses ./internal/pauses
//	go test -count=1 -exec "/tmp/pauses -seed 7" ./store/postgres
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	seed := flag.Uint64("seed", 1, "draws the moments")
	times := flag.Int("times", 3, "how often the program stops")
	within := flag.Duration("within", 20*time.Second, "the time from the start in which it stops")
	length := flag.Duration("length", 5*time.Second, "how long it stands still")
	spare := flag.Bool("spare", false, "stop only what the program has started, such as a database")
	flag.Parse()
	command := exec.Command(flag.Arg(0), flag.Args()[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	if err := command.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "pauses:", err)
		os.Exit(2)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	draw := rand.New(rand.NewPCG(*seed, 0))
	start := time.Now()
	for _, at := range moments(draw, *times, *within) {
		select {
		case err := <-ended:
			exit(err)
		case <-time.After(time.Until(start.Add(at))):
		}
		pids := stop(command.Process.Pid, *spare)
		time.Sleep(*length)
		for _, pid := range slices.Backward(pids) {
			_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
		}
		fmt.Fprintf(os.Stderr, "pauses: %d processes stopped after %v\n", len(pids), at)
	}
	exit(<-ended)
}

// exit ends as the program ended.
func exit(err error) {
	var failed *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &failed) && failed.Exited():
		os.Exit(failed.ExitCode())
	}
	fmt.Fprintln(os.Stderr, "pauses:", err)
	os.Exit(2)
}

func moments(draw *rand.Rand, times int, within time.Duration) []time.Duration {
	all := make([]time.Duration, times)
	for i := range all {
		all[i] = time.Duration(draw.Int64N(int64(within)))
	}
	slices.Sort(all)
	return all
}

// stop stops a process and all that it has started, parents first, so that no new ones appear.
// spare leaves out the process itself. It returns those that it has stopped: the test may have
// stopped others.
func stop(pid int, spare bool) []int {
	var stopped []int
	if !spare && !standsStill(pid) && syscall.Kill(pid, syscall.SIGSTOP) == nil {
		stopped = append(stopped, pid)
	}
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, thread := range threads {
		listed, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		for field := range strings.FieldsSeq(string(listed)) {
			if child, err := strconv.Atoi(field); err == nil {
				stopped = append(stopped, stop(child, false)...)
			}
		}
	}
	return stopped
}

func standsStill(pid int) bool {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, after, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(after, "T")
}
