package main

import (
	"fmt"
	"strings"
	"time"
)

// busy does something whose length nobody knows. After a second it shows on a terminal that the
// command still works: on the standard error, so that the standard output has the result only.
func (c *call) busy(name string, do func() error) error {
	shown := newProgress(c.stderr, name)
	if !shown.terminal {
		return do()
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(shown.pause())
		defer tick.Stop()
		for {
			select {
			case <-done:
				shown.clear()
				return
			case <-tick.C:
				shown.turn()
			}
		}
	}()
	err := do()
	close(done)
	<-ended
	return err
}

// turn draws a bar that moves, and the time since the beginning.
func (p *progress) turn() {
	passed := p.now().Sub(p.begun)
	if passed < time.Second {
		return
	}
	const length = barWidth / 5
	at := int(passed/p.pause()) % (barWidth - length)
	moving := strings.Repeat(" ", at) + strings.Repeat("=", length)
	p.open = true
	_, _ = fmt.Fprintf(p.out, "\r%s: [%-*s] %d s", p.command, barWidth, moving,
		int(passed.Seconds()))
}

// clear removes the bar from its line.
func (p *progress) clear() {
	if p.open {
		p.open = false
		_, _ = fmt.Fprint(p.out, "\r\x1b[K")
	}
}
