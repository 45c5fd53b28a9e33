package sqlstore

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// target returns a mutation of one user.
func target(id string) mutation {
	return mutation{Targets: []svc.Target{{Kind: svc.TargetUser, ID: id}}}
}

// follows returns a Store that listens and has asked its database.
func follows() *Store {
	s := &Store{}
	s.Listening(true)
	s.heard.asks()()
	return s
}

// ids returns the ids of the changes heard after a generation, and the generation reached. "ask"
// means that the database must be asked.
func ids(s *Store, since int64) (string, int64) {
	changes, ok := s.heard.since(since)
	if !ok {
		return "ask", 0
	}
	var list []string
	for _, t := range changes.Targets {
		list = append(list, t.ID)
	}
	return strings.Join(list, " "), changes.Generation
}

func TestHeard(t *testing.T) {
	type told struct {
		generation int64
		mutations  []mutation
	}
	a, b, c := target("a"), target("b"), target("c")
	for name, test := range map[string]struct {
		told  []told
		since int64
		want  string
	}{
		"nothing":              {nil, 5, "ask"},
		"the next":             {[]told{{6, []mutation{a}}}, 5, "a"},
		"three in a row":       {[]told{{6, []mutation{a}}, {7, []mutation{b}}, {8, []mutation{c}}}, 5, "a b c"},
		"the last of them":     {[]told{{6, []mutation{a}}, {7, []mutation{b}}, {8, []mutation{c}}}, 7, "c"},
		"known already":        {[]told{{6, []mutation{a}}}, 6, "ask"},
		"one transaction":      {[]told{{8, []mutation{a, b, c}}}, 6, "b c"},
		"a gap":                {[]told{{6, []mutation{a}}, {8, []mutation{c}}}, 5, "ask"},
		"after the gap":        {[]told{{6, []mutation{a}}, {8, []mutation{c}}}, 7, "c"},
		"too much to tell":     {[]told{{6, []mutation{a}}, {7, nil}}, 5, "ask"},
		"after too much":       {[]told{{7, nil}, {8, []mutation{c}}}, 7, "c"},
		"told twice":           {[]told{{6, []mutation{a}}, {6, []mutation{a}}}, 5, "a"},
		"a restored database":  {[]told{{6, []mutation{a}}, {3, []mutation{b}}}, 5, "ask"},
		"before the first one": {[]told{{6, []mutation{a}}}, 4, "ask"},
	} {
		s := follows()
		for _, n := range test.told {
			s.heard.hear(n.generation, n.mutations)
		}
		if have, _ := ids(s, test.since); have != test.want {
			t.Errorf("%s: %q, want %q", name, have, test.want)
		}
	}
}

// What was heard counts only while the Store listens and has asked its database lately.
func TestHeardIsNotTrusted(t *testing.T) {
	for name, spoil := range map[string]func(s *Store){
		"a lost connection":      func(s *Store) { s.Listening(false) },
		"a new connection":       func(s *Store) { s.Listening(true) },
		"a question before that": func(s *Store) { answered := s.heard.asks(); s.Listening(true); answered() },
		"a question long ago":    func(s *Store) { s.heard.asked = time.Now().Add(-patience) },
	} {
		s := follows()
		spoil(s)
		s.heard.hear(6, []mutation{target("a")})
		if have, _ := ids(s, 5); have != "ask" {
			t.Errorf("after %s: %q", name, have)
		}
	}
}

func TestHeardIsBounded(t *testing.T) {
	s := follows()
	for g := range int64(10 * heardMost) {
		s.heard.hear(g+1, []mutation{target("a")})
	}
	if n := len(s.heard.mutations); n != heardMost {
		t.Errorf("%d generations are kept", n)
	}
	if have, reached := ids(s, 10*heardMost-1); have != "a" || reached != 10*heardMost {
		t.Errorf("%q at %d", have, reached)
	}
}

// What is told is heard, within the bytes of a notification.
func TestToldIsHeard(t *testing.T) {
	some := svc.Target{
		Kind: svc.TargetTemplate, ID: "a b\n\"c\"", Scope: svc.ScopeServer, Owner: "é",
		Holder: svc.Identity{Kind: svc.KindUser, ID: "h"},
	}
	for n, want := range map[int]int{0: 0, 1: 1, 20: 20, 1000: 0} {
		text := told([]mutation{{slices.Repeat([]svc.Target{some}, n), []svc.Target{some}}})
		if len(text) > tellMost {
			t.Errorf("%d targets take %d bytes", n, len(text))
		}
		s := follows()
		if err := s.Hear("6 " + text); err != nil {
			t.Fatal(err)
		}
		changes, _ := s.heard.since(5)
		if len(changes.Targets) != want || n < 1000 && changes.Renamed[0] != some || want > 0 && changes.Targets[want-1] != some {
			t.Errorf("%d targets: heard %v", n, changes.Targets)
		}
	}
	for _, text := range []string{"", "6", "x []", "6 {}"} {
		if follows().Hear(text) == nil {
			t.Errorf("%q was heard", text)
		}
	}
}

func TestPace(t *testing.T) {
	var p notifyLimiter
	sent := make(chan struct{}, 10)
	if !p.due() || p.due() {
		t.Error("not the first of two notifications is due")
	}
	for range 5 {
		p.after(func() { sent <- struct{}{} })
	}
	<-sent
	time.Sleep(2 * lull)
	if len(sent) > 0 || !p.due() {
		t.Error("five notifications are not one")
	}
}
