package etag_test

import (
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/etag"
)

func TestMatches(t *testing.T) {
	is := is.New(t)
	tag := etag.Of("a", true)
	is.True(tag != etag.Of("a", false) && tag != etag.Of("atrue"))
	for _, c := range []struct {
		ifMatch []string
		matches bool
	}{
		{nil, true},
		{[]string{tag}, true},
		{[]string{"W/" + tag}, true},
		{[]string{`"other"`, etag.Any}, true},
		{[]string{`"other"`, ""}, false},
	} {
		is.Equal(etag.Matches(tag, c.ifMatch), c.matches)
	}
}
