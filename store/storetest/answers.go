package storetest

import (
	"fmt"
	"time"

	"github.com/extsvc/svc"
)

var answerRules = []rule{
	{"an answer is kept byte for byte until it expires", func(c *checker) {
		kept := newAnswer("\x00key\xff", "\x00request\xff", at(100))
		c.ok(c.KeepAnswer(c.ctx, kept, at(0)))
		c.ok(c.KeepAnswer(c.ctx, newAnswer("other", "", at(200)), at(0)))
		c.same("answer", c.answer("\x00key\xff", at(99)), kept)
		c.noAnswer("\x00key\xff", at(100))
		c.noAnswer("unknown", at(0))
		c.same("the other", c.answer("other", at(199)), newAnswer("other", "", at(200)))
	}},
	{"KeepAnswer answers ErrExists while the key has an " +
		"answer that has not expired", func(c *checker) {
		first, second := newAnswer("key", "first", at(100)), newAnswer("key", "second", at(200))
		c.ok(c.KeepAnswer(c.ctx, first, at(0)))
		c.is("KeepAnswer of a taken key", c.KeepAnswer(c.ctx, second, at(99)), svc.ErrExists)
		c.same("answer", c.answer("key", at(99)), first)
		c.ok(c.KeepAnswer(c.ctx, second, at(100)))
		c.same("answer", c.answer("key", at(100)), second)
	}},
	{"KeepAnswer deletes only answers that have expired", func(c *checker) {
		for i := range 5 {
			c.ok(c.KeepAnswer(c.ctx, newAnswer(fmt.Sprint(i), "", at(int64(10*(i+1)))), at(0)))
		}
		c.ok(c.KeepAnswer(c.ctx, newAnswer("new", "", at(100)), at(30)))
		for i := range 5 {
			if i > 2 {
				c.answer(fmt.Sprint(i), at(30))
			} else {
				c.noAnswer(fmt.Sprint(i), at(30))
			}
		}
	}},
	{"of several concurrent KeepAnswer calls for one key, one wins", func(c *checker) {
		c.oneWins(race(func(i int) error {
			return c.KeepAnswer(c.ctx, newAnswer("key", fmt.Sprint(i), at(100)), at(0))
		}), svc.ErrExists)
		c.answer("key", at(0))
	}},
	{"CountAnswers counts the caller's answers that have not expired, " +
		"up to a number", func(c *checker) {
		for i := range 4 {
			c.ok(c.KeepAnswer(c.ctx, answerTo("alice", fmt.Sprint(i), at(int64(10*(i+1)))), at(0)))
		}
		c.ok(c.KeepAnswer(c.ctx, answerTo("bob", "other", at(100)), at(0)))
		c.counts("alice", at(0), 10, 4)
		c.counts("alice", at(0), 3, 3)
		c.counts("alice", at(20), 10, 2)
		c.counts("bob", at(0), 10, 1)
		c.counts("nobody", at(0), 10, 0)
	}},
	{"DeleteAnswers deletes all answers to the caller, and no others", func(c *checker) {
		for _, key := range []string{"a", "b"} {
			c.ok(c.KeepAnswer(c.ctx, answerTo("alice", key, at(100)), at(0)))
		}
		c.ok(c.KeepAnswer(c.ctx, answerTo("bob", "other", at(100)), at(0)))
		c.ok(c.DeleteAnswers(c.ctx, []byte("alice")))
		c.noAnswer("a", at(0))
		c.noAnswer("b", at(0))
		c.answer("other", at(0))
		c.ok(c.DeleteAnswers(c.ctx, []byte("alice")))
		c.ok(c.KeepAnswer(c.ctx, answerTo("carol", "a", at(100)), at(0)))
		c.same("the answer to another caller", c.answer("a", at(0)),
			answerTo("carol", "a", at(100)))
	}},
	{"answers are not mutations: the generation does not change", func(c *checker) {
		c.ok(c.KeepAnswer(c.ctx, newAnswer("key", "", at(100)), at(0)))
		c.ok(c.DeleteAnswers(c.ctx, []byte("caller of key")))
		c.same("generation", c.generation(), int64(0))
	}},
}

func newAnswer(key, request string, expires time.Time) svc.StoredAnswer {
	return svc.StoredAnswer{
		Key: []byte(key), Caller: []byte("caller of " + key), Request: []byte(request),
		Data: []byte("data of " + key), ExpiresAt: expires,
	}
}

func answerTo(caller, key string, expires time.Time) svc.StoredAnswer {
	answer := newAnswer(key, "", expires)
	answer.Caller = []byte(caller)
	return answer
}

func (c *checker) counts(caller string, now time.Time, most, want int) {
	c.same("number of answers", must(c.CountAnswers(c.ctx, []byte(caller), now, most)), want)
}

func (c *checker) answer(key string, now time.Time) svc.StoredAnswer {
	return must(c.Answer(c.ctx, []byte(key), now))
}

func (c *checker) noAnswer(key string, now time.Time) {
	c.is("Answer", second(c.Answer(c.ctx, []byte(key), now)), svc.ErrNotFound)
}
