package text_test

import (
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/text"
)

func TestProblems(t *testing.T) {
	is := is.New(t)
	const ok, tooLong, slash = "", "must be at most 8 characters", "must hold no slash or backslash"
	for s, want := range map[string][3]string{ // of a text, of a name, of an id
		"日本 語":                          {ok, ok, ok},
		"...":                           {ok, ok, ok},
		strings.Repeat("\U0001f600", 8): {ok, ok, ok},
		"a/b":                           {ok, ok, slash},
		`a\b`:                           {ok, ok, slash},
		".":                             {ok, ok, `must not be "." or ".."`},
		"..":                            {ok, ok, `must not be "." or ".."`},
		"":                              {ok, "must be 1 to 8 characters", "must be 1 to 8 characters"},
		strings.Repeat("a", 9):          {tooLong, tooLong, tooLong},
	} {
		problems := [3]string{text.Problem(s, 8), text.NameProblem(s, 8), text.IDProblem(s, 8)}
		is.Equal(problems, want)
	}
	for s, want := range map[string]string{
		"\xff": "must be valid UTF-8", "a\xc3": "must be valid UTF-8",
		"a\x00": "must hold no NUL character",
	} {
		is.Equal(text.Problem(s, 8), want)
		is.Equal(text.IDProblem(s, 8), want)
	}
	for _, s := range []string{
		"a\nb", "\x7f", "\u0080", "\u0085", "\u200b", "a\u202eb", "\ufeff", "\u2028", "\u2029",
	} {
		is.Equal(text.Problem(s, 8), "")
		is.Equal(text.NameProblem(s, 8), "must hold no control, format or bidi characters")
		is.Equal(text.IDProblem(s, 8), "must hold no control, format or bidi characters")
	}
}

func TestVisible(t *testing.T) {
	is := is.New(t)
	is.True(text.Visible("") && text.Visible("!az~"))
	for _, s := range []string{" ", "a b", "\n", "\x7f", "ü", "\xff"} {
		is.True(!text.Visible(s))
	}
}

func TestHidden(t *testing.T) {
	is := is.New(t)
	hidden := strings.Map(func(r rune) rune { return map[bool]rune{true: 'x', false: r}[text.Hidden(r)] }, "a\u200c\u200d\u200b\x7f\U000e0000\U000e0fff\ue000\U000dffff\U000e1000")
	is.Equal(hidden, "a\u200c\u200dxxxx\ue000\U000dffff\U000e1000")
	is.Equal(text.Clean("ä\n\t\r\u202e\u200b"), "ä\n\t\ufffd\ufffd\u200b")
}

func TestHide(t *testing.T) {
	is := is.New(t)
	const secret = "a/b+c==d e"
	is.Equal(
		text.Hide(secret, "GET /?t=a%2Fb%2Bc%3D%3Dd+e, /a%2Fb+c==d%20e: a/b+c==d e"),
		"GET /?t=***, /***: ***",
	)
	is.Equal(text.Hide(secret, "a/b+c"), "a/b+c")
	is.Equal(text.Hide("7 bytes", "7 bytes"), "7 bytes")
	is.Equal(text.Hide("of bytes", "8 of bytes"), "8 ***")
	is.Equal(text.Hide("", "all"), "all")
}

// Texts of one line have one skeleton, and no two lines have the same.
func TestSkeleton(t *testing.T) {
	of := map[string]int{}
	for line, alike := range [][]string{
		{"alice", "Alice", " alice ", "ALICE", "аlice", "alіce", "ａｌｉｃｅ", "αlice"},
		{"café", "cafe\u0301", "CAFÉ"}, {"cafe"}, {"bob smith", "bob  smith", "bob\u00a0smith"}, {"bobsmith"},
		{"user1", "userl"}, {"user2"}, {"user0", "usero"}, {"й", "и\u0306", "Й"}, {"и"}, {"日本"}, {"!~", "！～"}, {""},
	} {
		for _, word := range alike {
			skeleton := text.Skeleton(word)
			if other, known := of[skeleton]; known && other != line {
				t.Errorf("%q looks like one of line %d", word, other)
			}
			of[skeleton] = line
			if skeleton != text.Skeleton(alike[0]) {
				t.Errorf("%q is %q, and %q is %q", word, skeleton, alike[0], text.Skeleton(alike[0]))
			}
		}
	}
}
