package accessindex

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"github.com/extsvc/svc/internal/cache"
	"github.com/extsvc/svc/internal/policy"
)

// SetPolicy writes a policy. It keeps the document, which must not change.
func (r *Index) SetPolicy(id string, document []byte) {
	n := r.policies.number(id)
	p := &r.policies.rows[n]
	if p.present && bytes.Equal(p.document, document) {
		return
	}
	r.unwrite(n)
	p.present, p.document = true, document
	if p.personal = policy.MayName(policy.UserVariable, document); p.personal {
		r.personal++
	}
	r.texts += p.size(id)
	if r.index == nil {
		return
	}
	var err error
	if p.parsed, err = r.schema.ParseDocument(document); err != nil {
		r.broken.add(n)
		return
	}
	r.texts += cache.Size(p.parsed)
	if variable := r.index.add(n, p.parsed); variable != nil {
		r.variable[n] = variable
	}
}

// DeletePolicy removes the row of a policy. Rows that refer to it stay, and give nothing.
func (r *Index) DeletePolicy(id string) {
	if n, found := r.policies.find(id); found {
		r.unwrite(n)
		r.tidyPolicy(n)
	}
}

// unwrite removes the row of a policy, if it has one.
func (r *Index) unwrite(n int32) {
	p := &r.policies.rows[n]
	if !p.present {
		return
	}
	r.texts -= p.size(r.policies.ids[n])
	if p.parsed != nil {
		r.texts -= cache.Size(p.parsed)
		r.index.remove(n, p.parsed)
		delete(r.variable, n)
	}
	if p.personal {
		r.personal--
	}
	r.broken.remove(n)
	p.present, p.personal, p.document, p.parsed = false, false, nil, nil
}

func (p *held) size(id string) int64 {
	return cache.Allocated(len(id)) + cache.Allocated(len(p.document)) + accountBytes
}

func (r *Index) tidyPolicy(n int32) {
	p := &r.policies.rows[n]
	if !p.present && len(p.users)+len(p.groups)+len(p.scoped) == 0 {
		r.policies.release(n)
	}
}

// Attach attaches a policy, or sets the priority of an attachment.
func (r *Index) Attach(policyID string, to Principal, priority int64) {
	p, a := r.policies.number(policyID), attachment{}
	list, who := r.attached(to)
	a.policy, a.priority = p, priority
	if at := slices.IndexFunc(*list, a.samePolicy); at >= 0 {
		(*list)[at] = a
	} else {
		*list = append(*list, a)
		of := r.reached(p, to.Group)
		*of = append(*of, who)
		r.attachments++
	}
	if !to.Group {
		r.direct[who] = *list
	}
}

// Detach removes an attachment, if it exists.
func (r *Index) Detach(policyID string, from Principal) {
	p, found := r.policies.find(policyID)
	if !found {
		return
	}
	list, who := r.attached(from)
	if at := slices.IndexFunc(*list, attachment{policy: p}.samePolicy); at >= 0 {
		*list = slices.Delete(*list, at, at+1)
		drop(r.reached(p, from.Group), who)
		r.tidyPolicy(p)
		r.attachments--
	}
	if from.Group {
		r.tidyGroup(who)
		return
	}
	if r.direct[who] = *list; len(*list) == 0 {
		delete(r.direct, who)
	}
	r.tidyUser(who)
}

func (a attachment) samePolicy(other attachment) bool { return a.policy == other.policy }

// attached returns the attachments of a principal, and its number. Those of a user are a copy.
func (r *Index) attached(to Principal) (list *[]attachment, who int32) {
	if to.Group {
		who = r.groups.number(to.ID)
		return &r.groups.rows[who].attached, who
	}
	who = r.user(to.ID)
	of := r.direct[who]
	return &of, who
}

// reached returns the users, or the groups, that a policy is attached to.
func (r *Index) reached(p int32, groups bool) *[]int32 {
	if groups {
		return &r.policies.rows[p].groups
	}
	return &r.policies.rows[p].users
}

// place is one statement of a policy.
type place struct{ policy, statement int32 }

// index finds statements by the patterns of banks that they name.
type index map[string][]place

// add adds the statements of a policy. It leaves out patterns with variables, and returns the
// statements that have such patterns.
func (x index) add(n int32, d *policy.Document) (variable []int32) {
	for i, st := range d.Statements {
		for _, pattern := range st.Banks {
			if !policy.HasVariables(pattern) {
				x[pattern] = append(x[pattern], place{n, int32(i)})
			} else if !slices.Contains(variable, int32(i)) {
				variable = append(variable, int32(i))
			}
		}
	}
	return variable
}

// remove removes the statements of a policy.
func (x index) remove(n int32, d *policy.Document) {
	for _, st := range d.Statements {
		for _, pattern := range st.Banks {
			x[pattern] = slices.DeleteFunc(x[pattern], func(p place) bool { return p.policy == n })
			if len(x[pattern]) == 0 {
				delete(x, pattern)
			}
		}
	}
}

// matching returns the statements that match a request, by policy, then statement.
func (r *Index) matching(action, bank string) []place {
	var found []place
	covering := func(pattern string) {
		for _, p := range r.index[pattern] {
			if r.statement(p).CoversAction(action) {
				found = append(found, p)
			}
		}
	}
	covering("*")
	for i := range bank {
		if strings.HasPrefix(bank[i:], "::") {
			covering(bank[:i+2] + "*")
		}
	}
	if !strings.HasSuffix(bank, "*") { // no literal ends so
		covering(bank)
	}
	slices.SortFunc(found, r.comparePlaces)
	return slices.Compact(found)
}

// comparePlaces orders statements by policy id, then by number.
func (r *Index) comparePlaces(a, b place) int {
	return cmp.Or(
		strings.Compare(r.policies.ids[a.policy], r.policies.ids[b.policy]),
		cmp.Compare(a.statement, b.statement),
	)
}
