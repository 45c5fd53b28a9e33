package adminpage

import (
	"slices"

	"github.com/extsvc/svc"
)

// maxSuggested is the most users that a field suggests: pages stay small.
const maxSuggested = 20

// suggestedUsers returns the users whose id, name or email begins with a text, then the first ones.
// It is empty for a caller who may not list users.
func (v *visit) suggestedUsers(text string) (ids []string) {
	for _, start := range slices.Compact([]string{text, ""}) {
		query := svc.UserQuery{Text: start, RowQuery: svc.RowQuery{Limit: maxSuggested}}
		for user, err := range v.h.service.Users.List(v.r.Context(), v.by, query) {
			if err != nil || len(ids) == maxSuggested {
				break // suggestions only: the page has its own answer
			}
			if !slices.Contains(ids, user.ID) {
				ids = append(ids, user.ID)
			}
		}
	}
	return ids
}
