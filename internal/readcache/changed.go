package readcache

import (
	"slices"

	"github.com/extsvc/svc/internal/policy"
)

// Changed says what one or more commits changed.
type Changed struct {
	Keys, Banks []string // ids
	Senders     []Sender // those that came to, left or moved between users
	Users       Set      // those with another row, other groups or other own policies
	Accounts    Set      // service accounts with another row
	Groups      Set      // those with other policies
	Policies    Set      // those with another document
	Access      bool     // any row of access
}

// Set is a set of ids. The nil Set is empty.
type Set map[string]bool

// Add adds an id.
func (s *Set) Add(id string) {
	if *s == nil {
		*s = Set{}
	}
	(*s)[id] = true
}

func (s Set) has(id string) bool { return id != "" && s[id] }

func (s Set) hasAny(ids []string) bool {
	return len(s) > 0 && slices.ContainsFunc(ids, func(id string) bool { return s[id] })
}

// Drop forgets what has changed, and nothing else. It is quick and does no I/O.
func (c *Cache) Drop(changed Changed) {
	if c == nil {
		return
	}
	for _, id := range changed.Keys {
		c.DropKey(id)
	}
	for _, id := range changed.Banks {
		c.banks.Drop(id)
	}
	if changed.Access {
		c.holders.Clear()
		c.banks.Clear()
		c.senders.Clear()
		return
	}
	for _, sender := range changed.Senders {
		c.senders.Drop(sender)
	}
	if len(changed.Users) > 0 {
		c.senders.DropWhere(func(_ *Sender, m *mapped) bool { return changed.Users[m.user] })
	}
	// Before it asks for accounts: an account that is put later was read later.
	reaches := changed.reaches()
	for id := range changed.Users {
		c.holders.DropLike(Holder{ID: id}, reaches) // the hash is that of the id
	}
	if len(changed.Accounts)+len(changed.Groups)+len(changed.Policies) > 0 ||
		len(changed.Users) > 0 && c.accounts.Load() {
		c.holders.DropWhere(reaches)
	}
}

// reaches returns whether the rights of a holder may differ by the change. Many holders share their
// policies, so it looks at equal ones once.
func (c *Changed) reaches() func(who *Holder, s *Standing) bool {
	policies := map[*policy.Shared]bool{}
	return func(who *Holder, s *Standing) bool {
		rows := c.Users
		if who.Kind == policy.ServiceAccount {
			rows = c.Accounts
		}
		if rows.has(who.ID) || c.Users.has(s.Owner) || c.Groups.hasAny(s.Groups) ||
			c.Policies.has(who.NarrowedBy) || c.Policies.has(s.Scoping) {
			return true
		}
		if len(c.Policies) == 0 {
			return false
		}
		shared := s.Rights.Shared()
		reached, known := policies[shared]
		if !known {
			reached = shared.Uses(c.Policies)
			policies[shared] = reached
		}
		return reached
	}
}
