package readcache

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/policy"
)

// holders and their standing, by a short name.
var crowd = map[string]struct {
	who Holder
	of  Standing
	has []string // policies
}{
	"alice":          {Holder{policy.User, "alice", ""}, Standing{User: "alice", Groups: []string{"staff", "bare"}}, []string{"p", "q"}},
	"alice narrowed": {Holder{policy.User, "alice", "narrow"}, Standing{User: "alice", Groups: []string{"staff", "bare"}}, []string{"p", "q"}},
	"bob":            {Holder{policy.User, "bob", ""}, Standing{User: "bob"}, []string{"q"}},
	"carol":          {Holder{policy.User, "carol", ""}, Standing{User: "carol", Groups: []string{"bare"}}, nil},
	"without row":    {Holder{policy.User, "nobody", ""}, Standing{}, nil},
	"bot":            {Holder{policy.ServiceAccount, "bot", ""}, Standing{User: "alice", Owner: "alice", Scoping: "scope", Groups: []string{"staff", "bare"}}, []string{"p"}},
	"orphan":         {Holder{policy.ServiceAccount, "orphan", ""}, Standing{Owner: "dave", Scoping: "gone"}, nil},
	"namesake":       {Holder{policy.ServiceAccount, "bob", ""}, Standing{User: "carol", Owner: "carol"}, nil},
	"public":         {public, Standing{}, nil},
}

func set(ids ...string) (s Set) {
	for _, id := range ids {
		s.Add(id)
	}
	return s
}

// A change drops those whose rights it may change, and nobody else.
func TestDropReaches(t *testing.T) {
	for what, change := range map[string]struct {
		Changed
		drops string
	}{
		"nothing":               {Changed{Keys: []string{"k"}, Banks: []string{"other"}}, ""},
		"a user":                {Changed{Users: set("alice")}, "alice, alice narrowed, bot"},
		"another user":          {Changed{Users: set("bob")}, "bob"},
		"a new owner":           {Changed{Users: set("dave")}, "orphan"},
		"a user without row":    {Changed{Users: set("nobody")}, "without row"},
		"an account":            {Changed{Accounts: set("bob")}, "namesake"},
		"a group":               {Changed{Groups: set("staff")}, "alice, alice narrowed, bot"},
		"a group without grant": {Changed{Groups: set("bare")}, "alice, alice narrowed, bot, carol"},
		"an unknown group":      {Changed{Groups: set("other")}, ""},
		"a policy":              {Changed{Policies: set("p")}, "alice, alice narrowed, bot"},
		"two policies":          {Changed{Policies: set("q", "scope")}, "alice, alice narrowed, bob, bot"},
		"a narrowing policy":    {Changed{Policies: set("narrow")}, "alice narrowed"},
		"a missing scope":       {Changed{Policies: set("gone")}, "orphan"},
		"anything":              {Changed{Access: true}, strings.Join(slices.Sorted(maps.Keys(crowd)), ", ")},
	} {
		for _, byKey := range []bool{false, true} { // holders are read with a key, or without
			follow(t, 0, func(is *is.I, c *following) {
				compiler := policy.NewCompiler(policy.Memory)
				for name, of := range crowd {
					subject := policy.Subject{Kind: of.who.Kind}
					for _, id := range of.has {
						subject.Grants = append(subject.Grants, policy.Grant{PolicyID: id})
					}
					read := func(context.Context, Holder, string) (*Standing, Bank, error) {
						s := of.of
						s.Rights, s.Generation = compiler.Compile(subject), 1
						return &s, Bank{Generation: 1}, nil
					}
					var err error
					if byKey {
						_, _, err = c.LoadKey(c.t.Context(), fmt.Sprintf("%016s", name), "b", func(ctx context.Context, _ string) (Key, *Standing, Bank, error) {
							s, b, err := read(ctx, of.who, "b")
							return Key{Holder: of.who, Generation: 1}, s, b, err
						})
					} else {
						_, _, err = c.LoadStanding(c.t.Context(), of.who, "b", read)
					}
					is.NoErr(err)
				}
				_, kept := c.banks.Get("b")
				is.True(kept)
				c.Drop(change.Changed)
				_, kept = c.banks.Get("b")
				is.Equal(kept, !change.Access)
				var dropped []string
				for _, name := range slices.Sorted(maps.Keys(crowd)) {
					if _, kept := c.holders.Get(crowd[name].who); !kept {
						dropped = append(dropped, name)
					}
				}
				if got := strings.Join(dropped, ", "); got != change.drops {
					t.Errorf("%s drops %q, want %q", what, got, change.drops)
				}
				c.Reset()
				for name, of := range crowd {
					_, holder := c.holders.Get(of.who)
					_, key := c.keys.find(keyOf(fmt.Sprintf("%016s", name)))
					is.True(!holder && !key)
				}
				_, kept = c.banks.Get("b")
				is.True(!kept)
			})
		}
	}
}

// A cache of accounts only drops those of a user, too.
func TestDropAccounts(t *testing.T) {
	follow(t, 0, func(is *is.I, c *following) {
		bot := crowd["bot"]
		bot.of.Rights, bot.of.Generation = policy.NewCompiler(policy.Memory).Compile(policy.Subject{Kind: bot.who.Kind}), 1
		_, _, err := c.LoadStanding(c.t.Context(), bot.who, "b", func(context.Context, Holder, string) (*Standing, Bank, error) {
			return &bot.of, Bank{Generation: 1}, nil
		})
		is.NoErr(err)
		c.Drop(Changed{Users: set("alice")})
		_, kept := c.holders.Get(bot.who)
		is.True(!kept)
	})
}

// A change of a user drops its senders, active or not, and a change of a sender that one.
func TestDropSenders(t *testing.T) {
	follow(t, 0, func(is *is.I, c *following) {
		senders := []Sender{{"chat", "alice"}, {"chat", "asleep"}, {"chat", "nobody"}}
		kept := func() (n int) {
			for _, sender := range senders {
				if _, ok := c.senders.Get(sender); ok {
					n++
				}
			}
			return n
		}
		reads := 0
		for _, sender := range append(senders, senders...) {
			_, err := c.LoadSender(c.t.Context(), sender, func() (Holder, string, int64, error) {
				reads++
				return public, strings.TrimPrefix(sender.ID, "nobody"), 1, nil
			})
			is.NoErr(err)
		}
		is.Equal(reads, len(senders))
		c.Drop(Changed{Users: set("bob"), Policies: set("p")})
		is.Equal(kept(), 3)
		c.Drop(Changed{Users: set("asleep")})
		is.Equal(kept(), 2)
		c.Drop(Changed{Senders: senders[2:]})
		is.Equal(kept(), 1)
		c.Drop(Changed{Access: true})
		is.Equal(kept(), 0)
	})
}
