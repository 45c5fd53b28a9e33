package httpapi_test

import (
	"bytes"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/strictjson"
	"github.com/extsvc/svc/store/memstore"
)

// A path that leads somewhere says all of where: escaped again from what was read, it leads to the same place. One that leads nowhere, or
// not by this method, is 404 or 405, and the methods that are named do lead somewhere.
func FuzzMatch(f *testing.F) {
	for _, r := range httpapi.Routes() {
		f.Add(r.Method, r.Path)
		f.Add("HEAD", strings.NewReplacer("{", "%7B", "}", "%2f").Replace(r.Path))
	}
	f.Add("GET", "/admin/templates/%2e%2E/history")
	f.Add("get", "//admin/%74emplates/\xff%")
	f.Add("GET", "/admin/templates/a+b%2B")
	f.Fuzz(func(t *testing.T, method, escaped string) {
		route, params, err := httpapi.Match(method, escaped)
		if err != nil {
			wantNoRoute(t, escaped, err)
			return
		}
		var again []string
		for segment := range strings.SplitSeq(route.Path, "/") {
			if strings.HasPrefix(segment, "{") {
				value, there := params[strings.Trim(segment, "{}")]
				if !there || value == "" {
					t.Fatalf("%q has no %s", escaped, segment)
				}
				segment = url.PathEscape(value)
			}
			again = append(again, segment)
		}
		same, sameParams, err := httpapi.Match(method, strings.Join(again, "/"))
		if err != nil || same != route || !maps.Equal(params, sameParams) || len(params) != strings.Count(route.Path, "{") {
			t.Fatalf("%q leads to %v with %q, and as %q to %v with %q: %v", escaped, route, params, again, same, sameParams, err)
		}
		var read []string
		for segment := range strings.SplitSeq(escaped, "/") {
			text, err := url.PathUnescape(segment)
			if err != nil {
				t.Fatalf("%q leads to %v", escaped, route)
			}
			read = append(read, url.PathEscape(text))
		}
		if !slices.Equal(read, again) {
			t.Fatalf("%q is read as %q, and says %q", escaped, again, read)
		}
	})
}

func wantNoRoute(t *testing.T, escaped string, err error) {
	t.Helper()
	if svc.ErrorCode(err) == svc.CodeNotFound {
		return
	}
	methods, told := strings.CutSuffix(strings.TrimPrefix(err.Error(), "this path takes "), " only")
	if !told || svc.ErrorCode(err) != "method_not_allowed" {
		t.Fatalf("%q: %v", escaped, err)
	}
	for method := range strings.SplitSeq(methods, ", ") {
		if _, _, err := httpapi.Match(method, escaped); err != nil {
			t.Fatalf("%q does not take %s: %v", escaped, method, err)
		}
	}
}

// A query that is read is written again as one that is read the same.
func FuzzQuery(f *testing.F) {
	for _, raw := range []string{"", "a", "a=", "=", "&&", "a=b&a=c", "a=%00", "a=%zz", "a;b", "a+b=c+d", "%3B=%26", "limit=5&cursor=x", "\xff=\xfe", "a=b=c"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		read, err := httpapi.ParseQuery(raw)
		if err != nil {
			if svc.ErrorCode(err) != svc.CodeInvalid {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		written := url.Values(read).Encode()
		if again, err := httpapi.ParseQuery(written); err != nil || !reflect.DeepEqual(again, read) {
			t.Fatalf("%q is %q, and as %q it is %q: %v", raw, read, written, again, err)
		}
	})
}

// A form that is read has each parameter once, and is written again as one that is read the same.
func FuzzForm(f *testing.F) {
	service := must(svc.New(svc.Config{Store: memstore.New()}))
	f.Cleanup(func() { _ = service.Close() })
	for _, raw := range []string{"", "token=a", "token=a&token=b", "token=%zz", "token;a", "=a&=b", "&&", "/a&/a", "token=a+b%20c", "\xff&\xff"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		read, err := httpapi.ParseForm(service, raw)
		if err != nil {
			if svc.ErrorCode(err) != svc.CodeInvalid {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		for name, values := range read {
			if len(values) != 1 {
				t.Fatalf("%q has %d values of %q", raw, len(values), name)
			}
		}
		written := url.Values(read).Encode()
		if again, err := httpapi.ParseForm(service, written); err != nil || !maps.EqualFunc(again, read, slices.Equal) {
			t.Fatalf("%q is %q, and as %q it is %q: %v", raw, read, written, again, err)
		}
	})
}

// A cursor that is taken is one that a Link has: the very text, for the very place.
func FuzzPage(f *testing.F) {
	for _, raw := range []string{"", "limit=1", "limit=1000&cursor=", "limit=00000001", "cursor=WyJhIiwiYiJd", "cursor=WyJhIiwiYiJd%0A", "cursor=W10", "cursor=bnVsbA", "cursor=WyL_IiwiYiJd", "cursor=WyIiLCIiXQ&limit=7"} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		limit, after, next, err := httpapi.Page(raw)
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
		sameLimit, sameAfter, sameNext, err := httpapi.Page(strings.TrimPrefix(next, "?"))
		if err != nil || sameLimit != limit || !slices.Equal(sameAfter, after) || sameNext != next {
			t.Fatalf("%q: %d rows after %q, by its own link %q %d after %q: %v", raw, limit, after, next, sameLimit, sameAfter, err)
		}
		given, _ := url.ParseQuery(raw)
		linked, _ := url.ParseQuery(next[1:])
		if given.Get("cursor") != linked.Get("cursor") {
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
		tags, err := httpapi.Tags("If-Match", []string{first, second})
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
			if again, err := httpapi.Tags("If-Match", joined); err != nil || !slices.Equal(again, tags) || len(tags) == 0 || len(tags) > 100 {
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
	f.Fuzz(func(t *testing.T, value string) {
		bearer := httpapi.BearerOf([]string{value})
		if other := httpapi.BearerOf([]string{value, value}) + httpapi.BearerOf(nil) + httpapi.BearerOf([]string{"", value}); other != "" {
			t.Fatalf("%q twice is %q", value, other)
		}
		if bearer == "" {
			return
		}
		scheme, spaces := value[:6], strings.TrimSuffix(value[6:], bearer)
		if http.CanonicalHeaderKey(scheme) != "Bearer" || spaces == "" || strings.Trim(spaces, " ") != "" || bearer[0] == ' ' {
			t.Fatalf("%q: the bearer %q", value, bearer)
		}
		if again := httpapi.BearerOf([]string{"Bearer " + bearer}); again != bearer {
			t.Fatalf("%q: %q, and again %q", value, bearer, again)
		}
	})
}

// A body that is taken as something says the same when it is written again, and no character of it was replaced.
func FuzzBodies(f *testing.F) {
	for _, body := range wholesome("0000000000000000") {
		f.Add([]byte(body))
	}
	good, bad := hostileValues()
	for value := range good {
		f.Add([]byte(`{"id": "a", "name": "n", "manifest": {"version": "1", "x": ` + value + `}}`))
	}
	for _, value := range bad {
		f.Add([]byte(`{"manifest": ` + value + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for name, read := range httpapi.Bodies {
			first, err := read(body)
			if err != nil {
				if svc.ErrorCode(err) != svc.CodeInvalid && svc.ErrorCode(err) != "body_too_large" {
					t.Fatalf("%s: %q: %v", name, body, err)
				}
				continue
			}
			written, err := strictjson.Marshal(first)
			if err != nil {
				t.Fatalf("%s: %q is read, and cannot be written: %v", name, body, err)
			}
			second, err := read(written)
			if err != nil {
				t.Fatalf("%s: %q is written as %q, and refused: %v", name, body, written, err)
			}
			if again, err := strictjson.Marshal(second); err != nil || !bytes.Equal(again, written) {
				t.Fatalf("%s: %q is written as %q, and then as %q: %v", name, body, written, again, err)
			}
			const replacement = "\ufffd"
			if bytes.Contains(written, []byte(replacement)) && !bytes.Contains(body, []byte(replacement)) && !bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
				t.Fatalf("%s: a character of %q was replaced: %q", name, body, written)
			}
		}
	})
}
