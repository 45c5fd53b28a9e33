package inbound_test

import (
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/inbound"
)

// A query that is read is written again as one that is read the same.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{"", "a", "a=", "=", "&&", "a=b&a=c", "a=%00", "a=%zz", "a;b", "a+b=c+d", "%3B=%26", "limit=5&cursor=x", "\xff=\xfe", "a=b=c"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		read, err := inbound.Query(raw)
		if err != nil {
			if svc.ErrorCode(err) != svc.CodeInvalid {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		written := read.Encode()
		if again, err := inbound.Query(written); err != nil || !reflect.DeepEqual(again, read) {
			t.Fatalf("%q is %q, and as %q it is %q: %v", raw, read, written, again, err)
		}
	})
}

func page(raw string) (limit int, after []string, next string, err error) {
	values, err := inbound.Query(raw)
	if err != nil {
		return 0, nil, "", err
	}
	p, err := inbound.PageOf("/list", values)
	if err != nil {
		return 0, nil, "", err
	}
	return p.Limit, p.After, p.Next("/list", values), nil
}

// A cursor that is taken is one that a Link has: the very text, for the very place.
func FuzzPage(f *testing.F) {
	for _, raw := range []string{"", "limit=1", "limit=1000&cursor=", "limit=00000001", "cursor=WyIvbGlzdCIsImEiLCJiIl0", "cursor=WyIvbGlzdCIsImEiLCJiIl0%0A", "cursor=WyIvb3RoZXIiLCJhIiwiYiJd", "cursor=W10", "cursor=bnVsbA", "cursor=WyIvbGlzdCIsIv8iLCJiIl0", "cursor=WyIvbGlzdCIsIiIsIiJd&limit=7"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		limit, after, next, err := page(raw)
		if err != nil {
			if svc.ErrorCode(err) != svc.CodeInvalid {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if limit < 0 || limit > 1000 || after != nil && (limit == 0 || len(after) != 2) {
			t.Fatalf("%q: %d rows after %q", raw, limit, after)
		}
		if after == nil {
			return
		}
		for _, part := range after {
			if !utf8.ValidString(part) || strings.ContainsRune(part, 0) {
				t.Fatalf("%q: after %q", raw, after)
			}
		}
		sameLimit, sameAfter, sameNext, err := page(strings.TrimPrefix(next, "?"))
		if err != nil || sameLimit != limit || !slices.Equal(sameAfter, after) || sameNext != next {
			t.Fatalf("%q: %d rows after %q, by its own link %q %d after %q: %v", raw, limit, after, next, sameLimit, sameAfter, err)
		}
		given, _ := url.ParseQuery(raw)
		linked, _ := url.ParseQuery(next[1:])
		if given.Get("cursor") != linked.Get("cursor") || linked.Get("limit") == "" {
			t.Fatalf("%q is taken for %q", raw, next)
		}
	})
}

// Entity tags that are taken are taken again when they are joined, in one header or in several.
func FuzzTags(f *testing.F) {
	for _, value := range []string{"*", `"a"`, `W/"a", "b"`, ` ,, "a" ,`, `"a""b"`, `"a", *`, "", "\"\xff\"", `"a,b"`, `W/`, `"`, "\t*\t", `w/"a"`, strings.Repeat(`"x",`, 100)} {
		f.Add(value, value)
		f.Add(value, `"x"`)
	}
	f.Fuzz(func(t *testing.T, first, second string) {
		tags, err := inbound.Tags(http.Header{"If-Match": {first, second}}, "If-Match")
		if err != nil {
			if svc.ErrorCode(err) != svc.CodeInvalid {
				t.Fatalf("%q %q: %v", first, second, err)
			}
			return
		}
		for _, tag := range tags {
			opaque := strings.TrimPrefix(tag, "W/")
			quoted := len(opaque) >= 2 && opaque[0] == '"' && opaque[len(opaque)-1] == '"' && strings.Count(opaque, `"`) == 2
			if !quoted && (tag != "*" || len(tags) > 1) {
				t.Fatalf("%q %q: the tag %q of %q", first, second, tag, tags)
			}
			if !strings.Contains(first+","+second, tag) {
				t.Fatalf("%q %q: nobody said %q", first, second, tag)
			}
		}
		for _, joined := range [][]string{tags, {strings.Join(tags, ", ")}} {
			if again, err := inbound.Tags(http.Header{"If-Match": joined}, "If-Match"); err != nil || !slices.Equal(again, tags) || len(tags) == 0 || len(tags) > 100 {
				t.Fatalf("%q %q: %q, and joined %q: %v", first, second, tags, again, err)
			}
		}
	})
}

// What is taken for a bearer is all that stands behind the scheme, and no more. Of two headers neither is.
func FuzzBearer(f *testing.F) {
	for _, value := range []string{"Bearer x", "bearer  x", "BEARER", "Bearer ", "Basic x", "", "Bearer\tx", "Bearer x y", "Bearerx", "\u212bearer x", "Bearer \x00"} {
		f.Add(value)
	}
	bearerOf := func(headers ...string) string { return inbound.Bearer(http.Header{"Authorization": headers}) }
	f.Fuzz(func(t *testing.T, value string) {
		bearer := bearerOf(value)
		if other := bearerOf(value, value) + bearerOf() + bearerOf("", value); other != "" {
			t.Fatalf("%q twice is %q", value, other)
		}
		if bearer == "" {
			return
		}
		scheme, spaces := value[:6], strings.TrimSuffix(value[6:], bearer)
		if http.CanonicalHeaderKey(scheme) != "Bearer" || spaces == "" || strings.Trim(spaces, " ") != "" || bearer[0] == ' ' {
			t.Fatalf("%q: the bearer %q", value, bearer)
		}
		if again := bearerOf("Bearer " + bearer); again != bearer {
			t.Fatalf("%q: %q, and again %q", value, bearer, again)
		}
	})
}
