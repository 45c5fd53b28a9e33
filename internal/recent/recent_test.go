package recent_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/recent"
)

func TestSet(t *testing.T) {
	is := is.New(t)
	s := recent.Set{Most: 3, Period: time.Minute}
	began := time.Unix(1000, 0)
	is.True(!s.Has("a", began))
	s.Add("a", began)
	is.True(s.Has("a", began.Add(time.Minute-1)))
	is.True(!s.Has("a", began.Add(time.Minute)))
	is.True(!s.Has("a", began.Add(-1))) // a clock that goes back
	is.True(!s.Has("b", began))
	s.Add("b", began)
	s.Add("c", began)
	is.True(s.Has("a", began) && s.Has("b", began) && s.Has("c", began))
	s.Add("d", began)
	is.True(!s.Has("a", began) && s.Has("d", began)) // it began again
	for i := range 100 {
		s.Add(fmt.Sprint(i), began)
	}
	left := 0
	for i := range 100 {
		if s.Has(fmt.Sprint(i), began) {
			left++
		}
	}
	is.True(left >= 1 && left <= 3)
}
