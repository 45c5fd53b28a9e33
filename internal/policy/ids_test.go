package policy_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
)

func TestIDs(t *testing.T) {
	is := is.New(t)
	var many []string
	for i := range 200 {
		many = append(many, fmt.Sprintf("%03d", 199-i))
	}
	for _, ids := range [][]string{nil, {"b", "a"}, many} {
		list := policy.NewIDs(slices.Clone(ids))
		slices.Sort(ids)
		is.Equal(list.Slice(), append([]string{}, ids...))
		is.Equal(list.Len(), len(ids))
		is.Equal(list.String(), fmt.Sprint(ids))
		for _, id := range ids {
			is.True(list.Contains(id))
			is.True(!list.Contains(id + " "))
		}
		for id := range list.All() {
			is.Equal(id, ids[0]) // and no more of them
			break
		}
	}
	var none policy.IDs
	is.Equal(none.Len(), 0)
	is.True(!none.Contains(""))
	text, err := json.Marshal(none)
	is.NoErr(err)
	is.Equal(string(text), "[]")
}
