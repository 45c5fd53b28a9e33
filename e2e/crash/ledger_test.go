//go:build linux

package crash

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/event"
)

// pen writes the ledger in the worker. Each line is one write: a pipe takes it whole or not at all.
type pen struct {
	file *os.File
	last atomic.Int64
}

const maxLine = 1000 // bytes; less than PIPE_BUF

func (p *pen) line(words ...string) {
	text := strings.ReplaceAll(strings.Join(words, " "), "\n", " ")
	if _, err := p.file.WriteString(text[:min(len(text), maxLine)] + "\n"); err != nil {
		os.Exit(3) // the test is gone
	}
}

// try announces an operation that brings an object into a state. It returns the operation's number.
func (p *pen) try(object string, action, state string) string {
	number := strconv.FormatInt(p.last.Add(1), 10)
	p.line("try", number, object, action, state)
	return number
}

// ledger is the test's knowledge of every object.
type ledger struct {
	writer *os.File // the workers' end of the pipe, kept open
	reader *os.File

	mayFail bool     // operations may fail as unavailable, not only those that waited for another's change of access
	ignored []string // kinds of problems to ignore

	mu       sync.Mutex
	objects  map[string]*entry
	tries    map[string]*attempt // under way, by number
	marks    map[string]chan struct{}
	heard    map[string]chan struct{} // closed at the next line that starts with that word
	problems []string
	acks     int // of this database
	fails    map[string]int
	happened int               // operations under way at a crash that took effect
	undone   int               // operations under way at a crash that did not
	revoked  int               // acknowledged revocations
	refused  int               // refused revocations
	since    int64             // the generation at the last settlement
	seen     int64             // the highest generation that a worker has read
	mark     svc.AuditPosition // the newest record at the last settlement
	tells    tale              // what the records tell up to mark
	changes  int               // acknowledged since the last settlement
	tried    int               // tried since the last settlement
}

// entry is the knowledge of one object.
type entry struct {
	name    string
	state   string   // acknowledged last
	token   string   // of an API key
	attempt *attempt // under way, or with unknown outcome; nil: none
	changed bool     // since the last settlement
	fed     bool     // so, and the feed has the change
	told    bool     // an event has reported it
}

// attempt is an announced operation.
type attempt struct {
	entry         *entry
	action, state string
	told, held    bool
}

// raises reports whether the operation raises the generation: all do but issues outside of a transaction of the host.
func (a *attempt) raises() bool { return a.action != string(event.APIKeyIssued) }

func newLedger() *ledger {
	reader, writer, err := os.Pipe()
	got(0, err)
	l := &ledger{
		reader: reader, writer: writer, objects: map[string]*entry{}, tries: map[string]*attempt{},
		marks: map[string]chan struct{}{}, heard: map[string]chan struct{}{}, fails: map[string]int{},
	}
	go l.read()
	return l
}

func (l *ledger) close() error { return errors.Join(l.writer.Close(), l.reader.Close()) }

func (l *ledger) read() {
	lines := bufio.NewReader(l.reader)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
				l.problem("ledger: %v", err)
			}
			return
		}
		l.take(strings.Fields(line))
	}
}

// sync waits until the ledger holds everything written before. A pipe keeps the order.
func (l *ledger) sync() error {
	done := make(chan struct{})
	l.mu.Lock()
	mark := strconv.Itoa(len(l.marks))
	l.marks[mark] = done
	l.mu.Unlock()
	if _, err := l.writer.WriteString("mark " + mark + "\n"); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-time.After(time.Minute):
		return errors.New("the ledger is not read")
	}
}

func (l *ledger) take(words []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch words[0] {
	case "mark":
		close(l.marks[words[1]])
	case "try":
		l.try(words[1], words[2], words[3], words[4])
	case "ack":
		l.ack(words[1], words[2:])
	case "fail":
		l.fail(words[1], words[2], strings.Join(words[3:], " "))
	case "unsure":
		l.fails[words[2]]++
		delete(l.tries, words[1])
	case "event":
		l.event(words[1], words[2])
	case "generation":
		generation, _ := strconv.ParseInt(words[1], 10, 64)
		if generation < l.seen {
			l.problemLocked("order: the generation went from %d back to %d", l.seen, generation)
		}
		l.seen = max(l.seen, generation)
	case "revokefailed":
		l.refused++
	case "problem":
		l.problemLocked("refused: %s", strings.Join(words[1:], " "))
	default:
		if heard := l.heard[words[0]]; heard != nil {
			close(heard)
			delete(l.heard, words[0])
		}
	}
}

func (l *ledger) try(number, name, action, state string) {
	e := l.objects[name]
	if e == nil {
		e = &entry{name: name, state: absent}
		l.objects[name] = e
	}
	if e.attempt != nil {
		l.problemLocked("harness: %s is tried twice at once", name)
	}
	if has(state, "key") && !has(e.state, "key") {
		e.token = "" // that of a key of an earlier user with that id
	}
	e.attempt = &attempt{entry: e, action: action, state: state}
	l.tries[number] = e.attempt
	if e.attempt.raises() {
		l.tried++
	}
	for _, holder := range []string{"key", "account-key"} {
		if action == string(event.AccessRemoved) && has(e.state, holder) {
			l.tried++ // see told
		}
	}
}

func (l *ledger) ack(number string, detail []string) {
	a := l.tries[number]
	delete(l.tries, number)
	a.hold(l)
	a.entry.attempt = nil
	if len(detail) > 0 {
		a.entry.token = detail[0]
	}
	if !a.told && a.action != outboxAction {
		l.problemLocked("event: %s of %s was acknowledged, and no event told of it", a.action, a.entry.name)
	}
	if a.state == stateRevoked {
		l.revoked++
	}
	l.acks++
}

// hold makes the attempted state the required one.
func (a *attempt) hold(l *ledger) {
	if !a.held && a.raises() {
		l.changes++
	}
	a.held = true
	a.entry.state, a.entry.changed = a.state, true
	a.entry.fed = a.entry.fed || a.raises()
}

func (l *ledger) fail(number, code, text string) {
	a := l.tries[number]
	delete(l.tries, number)
	if a.told {
		l.problemLocked("event: %s of %s failed, and an event told of it: %s", a.action, a.entry.name, text)
	}
	a.entry.attempt = nil
	l.fails[code]++
	if waited := strings.Contains(text, "is changing access: try again"); code != "unavailable" || !l.mayFail && !waited {
		l.problemLocked("refused: %s of %s: %s %s", a.action, a.entry.name, code, text)
	}
}

// event acknowledges the change that an event reports. A repeated event changes nothing.
func (l *ledger) event(name, action string) {
	e := l.objects[name]
	if e == nil {
		l.problemLocked("invented: an event %s of %s, which was never tried", action, name)
		return
	}
	e.told = true
	if a := e.attempt; a != nil && action == strings.TrimSuffix(a.action, "+outbox") {
		a.told = true
		a.hold(l)
	}
}

// hear returns a channel that closes when a line starts with that word.
func (l *ledger) hear(word string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	heard := make(chan struct{})
	l.heard[word] = heard
	return heard
}

func (l *ledger) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problemLocked(format, args...)
}

func (l *ledger) problemLocked(format string, args ...any) {
	kind, _, _ := strings.Cut(format, ":")
	if !slices.Contains(l.ignored, kind) {
		l.problems = append(l.problems, fmt.Sprintf(format, args...))
	}
}

func (l *ledger) count(counter *int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return *counter
}

// good returns the number of valid keys.
func (l *ledger) good() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.objects {
		if e.state == stateGood && e.attempt == nil {
			n++
		}
	}
	return n
}

func (l *ledger) failures(code string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fails[code]
}
