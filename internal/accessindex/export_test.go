package accessindex

// Remembered counts what an index has rows or places for.
func (r *Index) Remembered() []int {
	return []int{len(r.users.of), len(r.groups.of), len(r.policies.of), len(r.accounts.of), len(r.owned), len(r.index), len(r.variable)}
}
