package linearizability_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/extsvc/svc"
)

// accessState is what decides whether a user may recall from the bank of its name. The zero value
// allows it. open allows it to everybody.
type accessState struct {
	inactive, gone   bool // the user
	left             bool // the group
	denied, deleted  bool // the policy
	detached, opened bool
}

// accessCall is a call about one user, its group and the policy of that group.
type accessCall struct {
	user string
	do   string
}

func (c accessCall) subject() string { return c.user }
func (c accessCall) kind() string    { return c.do }
func (c accessCall) reads() bool     { return strings.HasPrefix(c.do, "decide") || c.do == "who can" }
func (c accessCall) String() string  { return c.do }

// accessAnswer is the result of a call.
type accessAnswer struct {
	code    svc.Code
	allowed bool // of decide and who can
}

func (a accessAnswer) unknown() bool { return a.code == svc.CodeUnavailable }

func (a accessAnswer) kind() string {
	if a.allowed {
		return "allowed"
	}
	return cmp.Or(string(a.code), "ok")
}

func (a accessAnswer) String() string { return a.kind() }

func (s accessState) step(call accessCall, have accessAnswer) []accessState {
	after, want := s.after(call)
	return possible(s, after, have, want)
}

// after holds the rules: the new state and the answer of a call.
func (s accessState) after(call accessCall) (accessState, accessAnswer) {
	after, code := s, svc.Code("")
	switch call.do {
	case "decide", "who can":
		return s, accessAnswer{allowed: s.allows()}
	case "decide as public":
		return s, accessAnswer{allowed: s.opened}
	case "activate", "deactivate":
		after.inactive, after.gone = call.do == "deactivate", false
	case "allow", "deny":
		after.denied, after.deleted = call.do == "deny", false
	case "rename":
	default:
		after, code = s.edited(call.do)
	}
	if code != "" {
		after = s
	}
	return after, accessAnswer{code: code}
}

// allows reports whether the user may recall.
func (s accessState) allows() bool { return s == accessState{opened: s.opened} }

// edited holds the rules for the methods that write one row.
func (s accessState) edited(do string) (accessState, svc.Code) {
	is := func(refused bool, code svc.Code) svc.Code {
		if refused {
			return code
		}
		return ""
	}
	was := s
	switch do {
	case "patch active", "patch inactive":
		s.inactive = do == "patch inactive"
		return s, is(was.gone, svc.CodeNotFound)
	case "delete user":
		s.gone, s.left, s.inactive = true, true, false
		return s, is(was.gone, svc.CodeNotFound)
	case "create user":
		s.gone = false
		return s, is(!was.gone, svc.CodeExists)
	case "join":
		s.left = false
		return s, is(was.gone, svc.CodeInvalid)
	case "leave":
		s.left = true
		return s, is(was.left, svc.CodeNotFound)
	case "attach":
		s.detached = false
		return s, is(was.deleted, svc.CodeInvalid)
	case "detach":
		s.detached = true
		return s, is(was.detached, svc.CodeNotFound)
	case "patch to allow", "patch to deny":
		s.denied = do == "patch to deny"
		return s, is(was.deleted, svc.CodeNotFound)
	case "delete policy":
		s.deleted, s.denied = true, false
		return s, cmp.Or(is(was.deleted, svc.CodeNotFound), is(!was.detached, svc.CodeInUse))
	case "create policy":
		s.deleted = false
		return s, is(!was.deleted, svc.CodeExists)
	case "open":
		s.opened = true
	case "shut":
		s.opened = false
		return s, is(!was.opened, svc.CodeNotFound)
	}
	return s, ""
}

// household gives each user a group, a policy and a bank of its name.
func household(users []string) (b svc.Bundle) {
	for _, id := range users {
		b.Users = append(b.Users, svc.User{ID: id})
		b.Groups = append(b.Groups, svc.Group{ID: id, Members: []string{id}})
		b.Policies = append(b.Policies, policyOf(id, id))
		b.Attachments = append(b.Attachments, toGroup(id, id))
	}
	return b
}

func policyOf(id, bank string) svc.Policy {
	return svc.Policy{ID: id, Document: fmt.Appendf(nil,
		`{"version":"2026-03-24","statements":[{"effect":"allow","actions":["bank:recall"],"banks":[%q]}]}`, bank)}
}

// accessWrites give and take the right to recall.
var accessWrites = strings.Split("activate,deactivate,allow,deny,rename,patch active,patch inactive,"+
	"delete user,create user,create user,join,join,leave,attach,attach,attach,detach,detach,patch to allow,patch to deny,"+
	"delete policy,delete policy,create policy,create policy,open,shut", ",")

// accessCalls are the calls about access: as many decisions as writes.
var accessCalls = slices.Concat(accessWrites, slices.Repeat([]string{"decide", "decide", "decide", "decide as public", "who can"}, 5))

func (c *client) actOnAccess(ctx context.Context) {
	user := c.random.IntN(len(c.users))
	call := accessCall{c.users[user], pick(c.random, accessCalls...)}
	service := c.service
	if !c.exact {
		service = c.services[user%len(c.services)]
	}
	called := time.Since(c.began)
	answer := askAccess(ctx, service, call)
	c.access = append(c.access, moment[accessCall, accessAnswer]{c.number, call, answer, called, time.Since(c.began)})
}

func askAccess(ctx context.Context, service *svc.Service, call accessCall) accessAnswer {
	id := call.user
	by := callers{"host": svc.Host, "root": root, "public": svc.Unmapped, "user": {Kind: svc.KindUser, ID: id}}
	value, err := obey(ctx, service, calls["access"][call.do], by, "$id", id, "$now", time.Now().String(),
		"$allows", string(policyOf(id, id).Document), "$denies", string(policyOf(id, "another").Document))
	answer := accessAnswer{code: svc.ErrorCode(err)}
	switch of := value.(type) {
	case svc.Decision:
		answer.allowed = err == nil && of.Allowed()
	case svc.WhoCanAnswer:
		answer.allowed = slices.Contains(of.Users, id)
	}
	return answer
}

// followed bounds the wait for what another Service has written. It usually takes milliseconds.
const followed = time.Minute

// What one Service writes row by row decides in another: at once, or soon where Services cannot see each commit.
func TestOthersFollow(t *testing.T) {
	eachStore(t, func(t *testing.T, open func(*testing.T) []svc.Store) {
		stores := open(t)
		services, exact := serve(t, stores...), isExact(t, stores)
		random := rand.New(rand.NewPCG(firstSeed(t), 2))
		const each = 5 // writes about a user: after many, it has no right to lose or to get back
		var users []string
		for n := range rounds(t) {
			users = append(users, fmt.Sprint("follower", n))
		}
		for _, b := range []svc.Bundle{administrators(), household(users)} {
			must(0, services[0].Access.Apply(t.Context(), svc.Host, b))
		}
		var state accessState
		for n := range each * len(users) {
			user := users[n/each]
			if n%each == 0 {
				state = accessState{}
			}
			write := accessCall{user, pick(random, accessWrites...)}
			after, want := state.after(write)
			for tries := 0; tries < 8 && after.allows() == state.allows(); tries++ { // most decide nothing
				write.do = pick(random, accessWrites...)
				after, want = state.after(write)
			}
			if have := askAccess(t.Context(), services[0], write); have != want {
				t.Fatalf("%v: %v, want %v", write, have, want)
			}
			state = after
			for _, do := range []string{"decide", "decide as public", "who can"} {
				read := accessCall{user, do}
				_, want := state.after(read)
				for end := time.Now().Add(followed); ; time.Sleep(time.Millisecond) {
					have := askAccess(t.Context(), services[len(services)-1], read)
					if have == want {
						break
					}
					if exact || time.Now().After(end) {
						t.Fatalf("%v after %v: %v, want %v", read, write, have, want)
					}
				}
			}
		}
	})
}
