package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress shows how far a command is, unless it is done within a second: on a terminal as a bar,
// else as lines if the command wants them. It is for one goroutine.
type progress struct {
	out      io.Writer
	command  string
	unit     string // of what is counted
	terminal bool
	lines    bool // without a terminal, print a line each second

	now         func() time.Time
	begun, last time.Time
	open        bool // the bar stands on an unfinished line
}

func newProgress(out io.Writer, command string) *progress {
	file, is := out.(*os.File)
	return &progress{
		out: out, command: command, unit: "rows", terminal: is && isTerminal(file),
		now: time.Now, begun: time.Now(),
	}
}

// pause returns the time between two reports.
func (p *progress) pause() time.Duration {
	if p.terminal {
		return 100 * time.Millisecond
	}
	return time.Second
}

// report shows that so many rows of total are done.
func (p *progress) report(done, total int64) {
	now := p.now()
	shown := !p.last.IsZero()
	if now.Sub(p.begun) < time.Second || !p.terminal && !p.lines ||
		now.Sub(p.last) < p.pause() && !(shown && done == total) {
		return
	}
	p.last = now
	if !p.terminal {
		_, _ = fmt.Fprintf(p.out, "%s: %d of %d %s\n", p.command, done, total, p.unit)
		return
	}
	p.open = true
	_, _ = fmt.Fprintf(p.out, "\r%s", p.bar(done, total))
}

const barWidth = 30

func (p *progress) bar(done, total int64) string {
	part := float64(done) / float64(max(1, total))
	full := strings.Repeat("=", int(part*barWidth))
	return fmt.Sprintf("%s: [%-*s] %3.0f %%, %d of %d %s",
		p.command, barWidth, full, 100*part, done, total, p.unit)
}

// end ends the line of the bar.
func (p *progress) end() {
	if p.open {
		p.open = false
		_, _ = fmt.Fprintln(p.out)
	}
}
