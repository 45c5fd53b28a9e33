package accessindex

import (
	"fmt"
	"testing"

	"github.com/extsvc/svc/internal/policy"
)

// An excerpt copies the attachments of a group once, however many of the named users are members.
func TestExcerptCopiesOnce(t *testing.T) {
	whole := New(policy.Memory)
	for i := range 200 {
		id := fmt.Sprint("user-", i)
		whole.SetUser(id, false)
		whole.Join(fmt.Sprint("group-", i/100), id)
	}
	e := excerpt{Index: New(policy.Memory), from: whole}
	for _, id := range whole.users.ids {
		e.user(id)
	}
	if e.users.count() != 200 || e.groups.count() != 2 {
		t.Errorf("an excerpt remembers %d users and %d groups", e.users.count(), e.groups.count())
	}
}

// Remembered counts what an index has rows or places for.
func (r *Index) Remembered() []int {
	return []int{len(r.users.of), len(r.groups.of), len(r.policies.of), len(r.accounts.of), len(r.owned), len(r.index), len(r.variable)}
}
