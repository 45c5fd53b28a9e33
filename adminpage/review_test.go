package adminpage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/expect"
)

// A list that a source makes long costs as much as its length: with a comparison of each text with each, these two would take minutes.
func TestLongLists(t *testing.T) {
	const n = 40_000
	from, to := make([]string, n), make([]string, n)
	for i := range n {
		from[i], to[i] = fmt.Sprintf("from %05d", i), fmt.Sprintf("to %05d", i)
	}
	to[n/2] = from[n/2]
	pieces := elements(from, to)
	expect.Equal(t, "pieces", len(pieces), 2*n-1)
	expect.Holds(t, pieces[0] == piece{"del", "from 00000"} && slices.Contains(pieces, piece{"", from[n/2]}), "the pieces are those of the lists")
	expect.Holds(t, difference("tags", json.RawMessage("null"), json.RawMessage(`["a"]`)).Block, "null does not look like an empty list")
}

// A review shows each change of a long text, and not what stays. What it cannot show in full it says, and offers.
func TestReviewOfALongText(t *testing.T) {
	words := strings.Fields(strings.Repeat("lorem ipsum dolor sit amet ", 500))
	for i := range words {
		words[i] += fmt.Sprint(i)
	}
	from := strings.Join(words, " ")
	words[800], words[1600], words[2499] = "ONE", "TWO "+words[1600], words[2499]+" END"
	pieces := wordsOf(from, strings.Join(words, " "))
	var changed []piece
	size := 0
	for _, p := range pieces {
		if p.Kind == "del" || p.Kind == "ins" {
			changed = append(changed, p)
		} else {
			size += len(p.Text)
		}
	}
	want := []piece{{"del", "lorem800 "}, {"ins", "ONE "}, {"ins", "TWO "}, {"del", "amet2499"}, {"ins", "amet2499 END"}}
	expect.Equal(t, "changed", fmt.Sprint(changed), fmt.Sprint(want))
	expect.Holds(t, size <= 6*keptBytes, "bytes that are kept: ", size)
	moved := slices.Concat(words[1000:], words[:1000])
	pieces = wordsOf(from, strings.Join(moved, " "))
	expect.Holds(t, len(pieces) <= 20, "pieces of a part that moved: ", len(pieces))
	pieces = wordsOf("a b c D E F G", "a b c D E z D E F G") // D E F is there, behind the start that is the same
	expect.Equal(t, "repeated", fmt.Sprint(pieces), "[{ a b c D E } {ins z D E } { F G}]")
	expect.Equal(t, "end", fmt.Sprint(elements([]string{"a", "b"}, []string{"a"})), "[{ a} {del b}]")
	list := elements([]string{"a", "b", "c", "d", "e", "f", "g", "h"}, []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "a"})
	expect.Equal(t, "list", fmt.Sprint(list), "[{ a} { b} { c} {skip 2 elements} { f} { g} { h} {ins i} {ins a}]")
}

// The page of a browser that has left is not made.
func TestReviewEndsWithItsRequest(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	leave()
	change := svc.ContentChange{Path: "/manifest/a", Base: json.RawMessage(`"` + strings.Repeat("a ", 10) + `"`)}
	var view reviewView
	err := view.compare(ctx, svc.TemplateDiff{Changes: []svc.ContentChange{change}})
	expect.Holds(t, errors.Is(err, context.Canceled) && view.Changes == nil, err, len(view.Changes))
}

// No sign-out is forgotten when there are too many. Those of one caller end no session of another, of its tenant or of others, and
// cost no more memory.
func TestTooManySignOuts(t *testing.T) {
	is, s := is.New(t), newSessions(time.Hour)
	now := time.Now()
	s.now = func() time.Time { return now }
	signIn := func(tenant string) (cookie string, in session) {
		cookie = s.encode(tenant, svc.Identity{Kind: svc.KindUser, ID: tenant}, "key")
		in, ok := s.decode(tenant, cookie)
		is.True(ok)
		return cookie, in
	}
	beside := s.encode("storm", svc.Identity{Kind: svc.KindServiceAccount, ID: "storm"}, "key")
	quiet, _ := signIn("quiet")
	out, in := signIn("quiet")
	s.end(in)
	signedIn, _ := signIn("storm")
	first, in := signIn("storm")
	s.end(in)
	s.end(in)
	now = now.Add(time.Minute)
	for range maxSignedOut {
		_, in := signIn("storm")
		s.end(in)
		is.True(len(s.signedOut) <= maxSignedOut)
	}
	fresh, _ := signIn("storm")
	for _, of := range []struct {
		tenant, cookie string
		in             bool
	}{{"quiet", quiet, true}, {"quiet", out, false}, {"storm", signedIn, false}, {"storm", first, false}, {"storm", fresh, true}, {"storm", beside, true}} {
		_, ok := s.decode(of.tenant, of.cookie)
		is.Equal(ok, of.in)
	}
	now = now.Add(time.Hour)
	s.makeRoom(now)
	is.Equal(len(s.signedOut)+len(s.since), 0)
}
