package sqlstore

import (
	"testing"
	"time"
)

// follows returns a Store that listens and has got the generation 5 from its database.
func follows() *Store {
	s := &Store{}
	s.Listening(true)
	s.heard.asks()(5)
	return s
}

// What was heard counts until the next question, and saves a question only while the Store listens
// and has asked its database lately.
func TestHeard(t *testing.T) {
	for name, test := range map[string]struct {
		happens     func(s *Store)
		newer, sure bool
	}{
		"nothing":                   {func(*Store) {}, false, true},
		"a notification":            {func(s *Store) { s.Hear() }, true, true},
		"a question after it":       {func(s *Store) { s.Hear(); s.heard.asks()(5) }, false, true},
		"a question before it":      {func(s *Store) { answered := s.heard.asks(); s.Hear(); answered(5) }, true, true},
		"a question that fails":     {func(s *Store) { s.Hear(); s.heard.asks() }, true, true},
		"another follower asked":    {func(s *Store) { s.Hear(); s.heard.asks()(6) }, true, true},
		"answers in another order":  {func(s *Store) { early := s.heard.asks(); s.Hear(); s.heard.asks()(6); early(5) }, true, true},
		"a lost connection":         {func(s *Store) { s.Listening(false) }, false, false},
		"a new connection":          {func(s *Store) { s.Listening(true) }, false, false},
		"a question before that":    {func(s *Store) { answered := s.heard.asks(); s.Listening(true); answered(5) }, false, false},
		"a question long ago":       {func(s *Store) { s.heard.asked = time.Now().Add(-patience) }, false, false},
		"a notification since then": {func(s *Store) { s.Listening(true); s.Hear() }, true, false},
	} {
		s := follows()
		s.news.next()
		test.happens(s)
		if woken := s.news.channel == nil; woken != (s.heard.told > 0 || s.heard.resets > 1) {
			t.Errorf("%s: woken %t", name, woken)
		}
		if newer, sure := s.heard.look(5); newer != test.newer || sure != test.sure {
			t.Errorf("%s: newer %t, sure %t", name, newer, sure)
		}
	}
}

// A state has another when no lane of it is behind. Those beyond its lanes are 0.
func TestStateHasAnother(t *testing.T) {
	var one, two state
	one.set(1, 3)
	two.set(2, 1)
	two.set(1, 3)
	if !(state{lanes: []int64{3}}).has(one) || one.has(two) || !two.has(one) || !two.has(two) || two.has(state{lanes: []int64{3, 2}}) {
		t.Error("states are compared wrongly")
	}
}

func TestNotificationsAreSpaced(t *testing.T) {
	var l notifyLimiter
	sent := make(chan struct{}, 10)
	for range 5 {
		l.after(func() { sent <- struct{}{} })
	}
	<-sent
	time.Sleep(2 * lull)
	if len(sent) > 1 { // the first call may have sent before the others came
		t.Error("five notifications are not two")
	}
}
