//go:build linux

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/extsvc/svc/internal/expect"

	"github.com/matryer/is"
)

// A program and what it has started stand still, unless the program is spared. What stood still
// already is left alone.
func TestStop(t *testing.T) {
	is := is.New(t)
	shell := exec.Command("sh", "-c", "sleep 600 & echo $!; wait")
	out, err := shell.StdoutPipe()
	is.NoErr(err)
	is.NoErr(shell.Start())
	defer func() {
		for _, pid := range stop(shell.Process.Pid, false) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = shell.Wait()
	}()
	_, err = bufio.NewReader(out).ReadString('\n')
	is.NoErr(err)
	spared := stop(shell.Process.Pid, true)
	is.Equal(len(spared), 1)
	is.True(!slices.Contains(spared, shell.Process.Pid))
	stops(t, spared[0])
	is.Equal(stop(shell.Process.Pid, false), []int{shell.Process.Pid})
	stops(t, shell.Process.Pid)
	is.Equal(len(stop(shell.Process.Pid, false)), 0)
	for _, pid := range append(spared, shell.Process.Pid) {
		is.NoErr(syscall.Kill(pid, syscall.SIGCONT))
	}
}

// stops waits until a process stands still.
func stops(t *testing.T, pid int) {
	t.Helper()
	expect.Soon(t, fmt.Sprintf("process %d goes on", pid), func() bool { return standsStill(pid) })
}

func TestMoments(t *testing.T) {
	is := is.New(t)
	drawn := moments(rand.New(rand.NewPCG(1, 0)), 3, time.Minute)
	is.Equal(len(drawn), 3)
	is.True(slices.IsSorted(drawn) && drawn[2] < time.Minute)
	is.Equal(drawn, moments(rand.New(rand.NewPCG(1, 0)), 3, time.Minute))
	is.True(!slices.Equal(drawn, moments(rand.New(rand.NewPCG(2, 0)), 3, time.Minute)))
}
