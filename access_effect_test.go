package svc_test

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/extsvc/svc"
)

// rightsRules has the rows of the rules: "help" writes rows of every kind and may recall from bank a, "lead" may give others rights on
// banks in addition, and "root" may do everything.
//
//go:embed testdata/rights.json
var rightsRules string

// does is a write by a caller.
type does func(a act) error

// act is where a write is done, and by whom.
type act struct {
	*host
	ctx context.Context
	by  svc.Principal
}

// rightsRule is a rule with a write that it allows and one that it refuses.
type rightsRule struct {
	says             string
	by               svc.Principal // zero: help
	allowed, refused does
}

func attaches(policy, kind, id string) does {
	return func(a act) error {
		return a.Policies.Attach(a.ctx, a.by, svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: kind, ID: id}})
	}
}

func detaches(policy, kind, id string) does {
	return func(a act) error {
		return a.Policies.Detach(a.ctx, a.by, svc.AttachmentKey{PolicyID: policy, Principal: svc.GrantedTo{Type: kind, ID: id}})
	}
}

func joins(group, user string) does {
	return func(a act) error { return a.Groups.AddMembers(a.ctx, a.by, group, user) }
}

func documents(policy, statements string) does {
	return func(a act) error {
		return errorOf(a.Policies.Patch(a.ctx, a.by, policy, svc.PolicyPatch{Document: []byte(`{"version": "2026-03-24", "statements": [` + statements + `]}`)}))
	}
}

func allows(action, bank string) string {
	return `{"effect": "allow", "actions": ["` + action + `"], "banks": ["` + bank + `"]}`
}

func scopes(account, policy string) does {
	patch := svc.ServiceAccountPatch{ScopingPolicyID: &svc.TextPatch{}}
	if policy != "" {
		patch.ScopingPolicyID.Value = &policy
	}
	return func(a act) error { return errorOf(a.ServiceAccounts.Patch(a.ctx, a.by, account, patch)) }
}

// moves moves a sender from one user to another.
func moves(from, to string) does {
	const form = `{"users": [{"id": %q, "channels": []}, {"id": %q, "channels": [{"provider": "slack", "sender_id": "9"}]}]}`
	return writes(fmt.Sprintf(form, from, to))
}

func writes(bundle string) does {
	return func(a act) error {
		b, err := svc.ParseBundle([]byte(bundle))
		if err != nil {
			return err
		}
		return a.Access.Write(a.ctx, a.by, b, svc.BundleWrite{})
	}
}

func connects(user, provider, sender string) does {
	return func(a act) error {
		return a.Users.AddChannel(a.ctx, a.by, user, svc.Channel{Provider: provider, SenderID: sender})
	}
}

func opens(bank, public string) does {
	return func(a act) error {
		return errorOf(a.Banks.SetPolicy(a.ctx, a.by, svc.BankPolicy{BankID: bank, Document: []byte(`{"version": "2026-03-24", "public_access": {` + public + `}}`)}))
	}
}

func patches(user string, patch svc.UserPatch) does {
	return func(a act) error { return errorOf(a.Users.Patch(a.ctx, a.by, user, patch)) }
}

func drops(group string) does {
	return func(a act) error { return a.Groups.Delete(a.ctx, a.by, group) }
}

func makes(account svc.ServiceAccount) does {
	return func(a act) error { return errorOf(a.MyServiceAccounts.Create(a.ctx, a.by, account)) }
}

func issues(holder string) does {
	return func(a act) error { return errorOf(a.Keys.Issue(a.ctx, a.by, user(holder).Identity(), svc.NewAPIKey{})) }
}

// first has the host do something before a write.
func first(before, then does) does {
	return func(a act) error {
		if err := before(act{a.host, a.ctx, svc.Host}); err != nil {
			return err
		}
		return then(a)
	}
}

// as has another caller do something.
func as(by svc.Principal, do does) does {
	return func(a act) error { return do(act{a.host, a.ctx, by}) }
}

// breaks puts a policy of a bank into the store that does not parse.
func breaks(bank string) does {
	return func(a act) error {
		broken := svc.Bundle{BankPolicies: []svc.BankPolicy{{BankID: bank, Document: []byte(`{}`)}}}
		return a.store.ChangeAccess(a.ctx, svc.AccessNames{}, func(svc.Bundle) (svc.AccessWrite, error) { return broken.Write(), nil })
	}
}

func narrows(user, policy string) does {
	return func(a act) error {
		return errorOf(a.Keys.Issue(a.ctx, a.by, svc.Identity{Kind: svc.KindUser, ID: user}, svc.NewAPIKey{ScopingPolicyID: policy}))
	}
}

// prunes writes all rows again without those of a user and its attachments, or without an attachment.
func prunes(policy, id string) does {
	return func(a act) error {
		b, err := a.Access.Export(a.ctx, svc.Host)
		if err != nil {
			return err
		}
		var left []svc.Attachment
		for _, at := range b.Attachments {
			if at.PolicyID != policy || at.Principal.ID != id {
				left = append(left, at)
			}
		}
		b.Attachments = left
		return a.Access.Write(a.ctx, a.by, b, svc.BundleWrite{Prune: true})
	}
}

// leaves detaches a policy from a group by a bundle of nothing else.
func leaves(policy, group string) does {
	return func(a act) error {
		return a.Access.Write(a.ctx, a.by, svc.Bundle{}, svc.BundleWrite{Detach: []svc.AttachmentKey{attachmentOf(policy, group)}})
	}
}

func attachmentOf(policy, group string) svc.AttachmentKey {
	return svc.AttachmentKey{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: group}}
}

var rightsTable = []rightsRule{
	{says: "who attaches a policy has what it gives", allowed: attaches("recall", "user", "bob"), refused: attaches("retain", "user", "ann")},
	{says: "who attaches a policy to a group has what its members get", allowed: attaches("recall", "group", "muted"), refused: attaches("retain", "group", "readers")},
	{says: "a policy that gives nothing new may be attached", allowed: attaches("retain", "group", "keepers"), refused: attaches("audit", "user", "ann")},
	{says: "who adds a member has what the member gets", allowed: joins("readers", "bob"), refused: joins("keepers", "ann")},
	{says: "who writes a document has what it newly allows", allowed: documents("recall", allows("bank:memories:list", "a")), refused: documents("recall", allows("bank:*", "a"))},
	{says: "a document of no use to anybody may say anything", allowed: documents("none", allows("iam:*", "*")), refused: documents("audit", allows("iam:*", "*"))},
	{says: "who widens what scopes an account has what it newly may", allowed: scopes("bot", "none"), refused: scopes("bot", "")},
	{says: "who detaches a deny has what it denied", allowed: detaches("recall", "group", "readers"), refused: detaches("deny", "group", "muted")},
	{says: "who detaches by a bundle has what it denied", allowed: leaves("recall", "readers"), refused: leaves("deny", "muted")},
	{says: "who removes the deny of a document has what it denied", allowed: documents("retain", ""), refused: documents("deny", "")},
	{says: "who deletes a group has what it denied", allowed: drops("readers"), refused: drops("muted")},
	{says: "who takes a control-plane right has it", allowed: detaches("retain", "user", "bob"), refused: detaches("audit", "user", "chief")},
	{says: "who maps a sender has what it gets", allowed: connects("ann", "slack", "9"), refused: connects("bob", "slack", "9")},
	{says: "an inactive user counts as an active one for its sender", allowed: connects("rest", "slack", "9"), refused: connects("idle", "slack", "9")},
	{says: "a sender in a bundle counts as one alone", allowed: writes(`{"users": [{"id": "rest", "is_active": false, "channels": [{"provider": "slack", "sender_id": "9"}]}]}`), refused: writes(`{"users": [{"id": "idle", "is_active": false, "channels": [{"provider": "slack", "sender_id": "9"}]}]}`)},
	{
		says:    "a sender that moves from an inactive user to an active one gets all that this one has",
		allowed: first(as(user("root"), moves("bob", "idle")), moves("idle", "ann")), refused: first(as(user("root"), moves("bob", "idle")), moves("idle", "bob")),
	},
	{
		says:    "so does one that moves to another inactive user",
		allowed: first(as(user("root"), moves("bob", "idle")), moves("idle", "rest")),
		refused: first(first(as(user("root"), moves("bob", "idle")), as(user("root"), patches("bob", svc.UserPatch{Inactive: new(true)}))), moves("idle", "bob")),
	},
	{
		says:    "a sender has already what its bank gives the public, in each context",
		allowed: first(opens("z", `"default": {"actions": ["bank:retain"]}`), connects("bob", "slack", "9")),
		refused: first(opens("z", `"overrides": [{"scope": "channel", "value": "c", "actions": ["bank:retain"]}]`), connects("bob", "slack", "9")),
	},
	{says: "who opens a bank has what it opens", allowed: opens("a", `"default": {"actions": ["bank:recall"]}`), refused: opens("a", `"default": {"actions": ["bank:retain"]}`)},
	{
		says:    "who opens a bank in one context has what it opens",
		allowed: opens("a", `"overrides": [{"scope": "topic", "value": "t", "actions": ["bank:recall", "iam:*"]}]`),
		refused: opens("a", `"overrides": [{"scope": "topic", "value": "t", "actions": ["bank:reflect"]}]`),
	},
	{says: "who repairs the policy of a bank needs iam:banks:grant when anybody gains", allowed: first(breaks("z"), as(user("lead"), opens("z", ""))), refused: first(breaks("z"), opens("z", ""))},
	{says: "who activates a user has all that it has", allowed: patches("rest", svc.UserPatch{Inactive: new(false)}), refused: patches("idle", svc.UserPatch{Inactive: new(false)})},
	{says: "an inactive user gains as an active one", allowed: attaches("recall", "user", "idle"), refused: attaches("retain", "user", "rest")},
	{says: "who changes a user has its control-plane rights", allowed: patches("bob", svc.UserPatch{DisplayName: new("Bob")}), refused: patches("chief", svc.UserPatch{DisplayName: new("x")})},
	{says: "a scoped account makes accounts within its scope", by: account("maker"), allowed: makes(svc.ServiceAccount{ID: "new", ScopingPolicyID: svc.PolicyBankReadOnly}), refused: makes(svc.ServiceAccount{ID: "new"})},
	{says: "a scoped account widens none, itself included", by: account("maker"), allowed: scopes("maker", "makers"), refused: scopes("maker", "")},
	{says: "a narrowed caller gives what it has itself", by: svc.Principal{Kind: svc.KindUser, ID: "root", ScopingPolicyID: "writer"}, allowed: attaches("recall", "user", "bob"), refused: attaches("retain", "user", "ann")},
	{says: "a narrowed caller does not widen what narrows it", by: svc.Principal{Kind: svc.KindUser, ID: "root", ScopingPolicyID: "narrow"}, allowed: documents("narrow", allows("iam:policies:write", "*")), refused: documents("narrow", allows("iam:*", "*"))},
	{says: "the bearer of a narrowed key gains when the narrowing widens", allowed: first(narrows("bob", "none"), documents("none", allows("bank:recall", "a"))), refused: first(narrows("bob", "none"), documents("none", allows("bank:retain", "z")))},
	{says: "iam:banks:grant stands for rights on banks alone", by: user("lead"), allowed: attaches("retain", "user", "ann"), refused: attaches("audit", "user", "ann")},
	{says: "what the host vouches for counts on the control plane", by: user("ann", "iam:attachments:write", "iam:audit:*"), allowed: attaches("audit", "user", "bob"), refused: attaches("grant", "user", "bob")},
	{says: "who issues a key for another has what its holder has", allowed: issues("ann"), refused: issues("bob")},
	{says: "a bundle that removes a deny gives what it denied", allowed: prunes("recall", "readers"), refused: prunes("deny", "muted")},
}

// Nobody gains beyond the writer: each rule with a write that it allows and one that it refuses, which changes nothing.
func TestRightsOfWriters(t *testing.T) {
	for _, rule := range rightsTable {
		t.Run(rule.says, func(t *testing.T) {
			is := is.New(t)
			by := rule.by
			if by.Kind == "" {
				by = user("help")
			}
			h := hostOf(t, rightsRules)
			is.NoErr(rule.allowed(act{h, t.Context(), by}))

			h = hostOf(t, rightsRules)
			err := rule.refused(act{h, t.Context(), by})
			wantCode(t, err, svc.CodeForbidden, "")
			is.True(outcomeOf(err) == beyondCaller || outcomeOf(err) == aboveCeiling) // and not for the action
			before := must(h.Access.Export(t.Context(), svc.Host))
			is.NoErr(rule.refused(act{h, t.Context(), user("root")})) // who has everything may
			after := must(h.Access.Export(t.Context(), svc.Host))
			is.True(string(encoded(before)) != string(encoded(after)) || strings.Contains(rule.says, "key"))
		})
	}
}

// What may come of a write.
const (
	done         = "done"
	lacksAction  = "403 for the action"
	aboveCeiling = "403 for a right of whoever changes"
	beyondCaller = "403 for what somebody gains or loses"

	wrongTag = `"another"`
)

func outcomeOf(err error) string {
	switch text := fmt.Sprint(err); {
	case err == nil:
		return done
	case svc.ErrorCode(err) != svc.CodeForbidden:
		return string(svc.ErrorCode(err))
	case strings.HasPrefix(text, "you are not allowed "):
		return lacksAction
	case strings.HasSuffix(text, ", but you are not"):
		return aboveCeiling
	case strings.HasSuffix(text, ", which you are not allowed"):
		return beyondCaller
	default:
		return text
	}
}

// The order of refusals: 403 for the action, 404, 400 for what the body names, 403 for the effect, 412, 409.
func TestOrderOfRefusals(t *testing.T) {
	h := hostOf(t, rightsRules)
	scope := func(by svc.Principal, account, policy string, ifMatch ...string) string {
		_, err := h.ServiceAccounts.Patch(t.Context(), by, account, svc.ServiceAccountPatch{ScopingPolicyID: &svc.TextPatch{Value: &policy}}, ifMatch...)
		return outcomeOf(err)
	}
	deactivate := func(ifMatch ...string) string {
		_, err := h.Users.Patch(t.Context(), user("root"), "root", svc.UserPatch{Inactive: new(true)}, ifMatch...)
		return outcomeOf(err)
	}
	remove := func(by svc.Principal, policy string, ifMatch ...string) string {
		return outcomeOf(h.Policies.Delete(t.Context(), by, policy, ifMatch...))
	}
	is := is.New(t)
	is.Equal(scope(user("ann"), "unknown", "unknown", wrongTag), lacksAction)
	is.Equal(scope(user("help"), "unknown", "unknown", wrongTag), string(svc.CodeNotFound))
	is.Equal(scope(user("help"), "bot", "unknown", wrongTag), string(svc.CodeInvalid))
	is.Equal(scope(user("help"), "bot", "retain", wrongTag), beyondCaller)
	is.Equal(scope(user("help"), "bot", "none", wrongTag), string(svc.CodePrecondition))
	is.Equal(scope(user("help"), "bot", "none"), done)
	is.Equal(deactivate(wrongTag), string(svc.CodePrecondition))
	is.Equal(deactivate(), string(svc.CodeLastAdministrator))
	is.Equal(remove(user("help"), "all", wrongTag), string(svc.CodePrecondition))
	is.Equal(remove(user("help"), "all"), string(svc.CodeInUse))
	is.Equal(remove(user("help"), svc.PolicyIAMAdmin), string(svc.CodeBuiltin))
	is.Equal(remove(user("ann"), svc.PolicyIAMAdmin), lacksAction)
}

// A row that cannot be named comes before an id that is taken.
func TestWhatIsNamedComesBeforeWhatIsTaken(t *testing.T) {
	h := newHost(t)
	h.apply(t, `{"users": [{"id": "ann"}], "groups": [{"id": "team"}], "service_accounts": [{"id": "bot", "owner_user_id": "ann"}]}`)
	_, err := h.ServiceAccounts.Create(t.Context(), svc.Host, svc.ServiceAccount{ID: "bot", OwnerUserID: "nobody"})
	wantCode(t, err, svc.CodeInvalid, "/owner_user_id")
	wantCode(t, errorOf(h.Groups.Create(t.Context(), svc.Host, svc.Group{ID: "team", Members: []string{"nobody"}})), svc.CodeInvalid, "/members/0")
	wantCode(t, errorOf(h.ServiceAccounts.Create(t.Context(), svc.Host, svc.ServiceAccount{ID: "bot", OwnerUserID: "ann"})), svc.CodeExists, "/id")
}

// A service account with an owner and a policy can be renamed, narrowed and widened.
func TestAServiceAccountIsPatched(t *testing.T) {
	is, h := is.New(t), newHost(t)
	h.apply(t, `{"users": [{"id": "ann"}], "policies": [{"id": "few", "document": {"version": "2026-03-24", "statements": []}}],
		"service_accounts": [{"id": "bot", "owner_user_id": "ann", "scoping_policy_id": "few"}]}`)
	h.actions()
	for _, patch := range []svc.ServiceAccountPatch{
		{DisplayName: new("Bot")}, {ScopingPolicyID: &svc.TextPatch{Value: new(svc.PolicyBankAdmin)}}, {Inactive: new(true)}, {ScopingPolicyID: &svc.TextPatch{}},
	} {
		must(h.ServiceAccounts.Patch(t.Context(), svc.Host, "bot", patch))
	}
	is.Equal(h.actions(), []string{
		"access.written service_account/bot by ", "access.written service_account/bot by ", "access.written policy/bank:admin by ",
		"access.written service_account/bot by ", "access.written service_account/bot by ",
	})
	bot := must(h.ServiceAccounts.Read(t.Context(), svc.Host, "bot"))
	is.Equal(bot, svc.ServiceAccount{ID: "bot", DisplayName: "Bot", OwnerUserID: "ann", Inactive: true})
	_, err := h.ServiceAccounts.Patch(t.Context(), svc.Host, "bot", svc.ServiceAccountPatch{ScopingPolicyID: &svc.TextPatch{Value: new("none")}})
	wantCode(t, err, svc.CodeInvalid, "/scoping_policy_id")
}

// A row that does not exist matches no condition, not even the one that any row matches.
func TestNoRowMatchesNoETag(t *testing.T) {
	is, h := is.New(t), newHost(t)
	must(h.Keys.Issue(t.Context(), svc.Host, user("gone").Identity(), svc.NewAPIKey{}))
	for _, tag := range []string{svc.AnyETag, `"x"`, ""} {
		_, err := h.Banks.SetPolicy(t.Context(), svc.Host, svc.BankPolicy{BankID: "notes", Document: []byte(`{"version": "2026-03-24"}`)}, tag)
		wantCode(t, err, svc.CodePrecondition, "")
		wantCode(t, h.Users.Delete(t.Context(), svc.Host, "gone", tag), svc.CodePrecondition, "")
	}
	is.NoErr(h.Users.Delete(t.Context(), svc.Host, "gone"))
}

// The senders of a user that a bundle removes are free for others.
func TestASenderIsFreeOnceItsUserIsPruned(t *testing.T) {
	is, h := is.New(t), hostOf(t, `{"users": [{"id": "ann", "channels": [{"provider": "slack", "sender_id": "1"}]}]}`)
	b := must(svc.ParseBundle([]byte(`{"users": [{"id": "bob", "channels": [{"provider": "slack", "sender_id": "1"}]}]}`)))
	wantCode(t, h.Access.Write(t.Context(), svc.Host, b, svc.BundleWrite{}), svc.CodeExists, "/users/0/channels/0")
	is.NoErr(h.Access.Write(t.Context(), svc.Host, b, svc.BundleWrite{Prune: true}))
	left := must(h.Access.Export(t.Context(), svc.Host))
	is.Equal(len(left.Users), 1)
	is.Equal(left.Users[0].Channels, b.Users[0].Channels)
}

// A caller for whom the host vouches does not lift a deny of its own: it wins over what the host vouches for.
func TestACallerDoesNotLiftItsOwnDeny(t *testing.T) {
	for name, lift := range map[string]does{
		"detaches it": detaches("barred", "user", "guest"), "leaves its group": func(a act) error {
			return a.Groups.RemoveMembers(a.ctx, a.by, "closed", "guest")
		},
		"deletes its group": drops("closed"), "rewrites it": documents("barred", ""), "deletes itself": func(a act) error {
			return a.Users.Delete(a.ctx, a.by, "guest")
		},
	} {
		t.Run(name, func(t *testing.T) {
			is, h := is.New(t), newHost(t)
			h.apply(t, `{"users": [{"id": "guest"}], "groups": [{"id": "closed", "members": ["guest"]}],
				"policies": [{"id": "barred", "document": {"version": "2026-03-24", "statements": [{"effect": "deny", "actions": ["iam:banks:*"], "banks": ["*"]}]}}],
				"attachments": [{"policy_id": "barred", "principal_type": "user", "principal_id": "guest"}]}`)
			if strings.Contains(name, "group") {
				is.NoErr(detaches("barred", "user", "guest")(act{h, t.Context(), svc.Host}))
				is.NoErr(attaches("barred", "group", "closed")(act{h, t.Context(), svc.Host}))
			}
			guest := user("guest", "iam:*")
			is.Equal(outcomeOf(opens("a", "")(act{h, t.Context(), guest})), lacksAction)
			is.Equal(outcomeOf(lift(act{h, t.Context(), guest})), beyondCaller)
			is.NoErr(lift(act{h, t.Context(), user("other", "iam:*")}))
		})
	}
}

// In a transaction of the host a caller gives no more than it has, as in one of its own.
func TestNobodyGainsInAHostTransaction(t *testing.T) {
	is, h := is.New(t), newHost(t)
	h.apply(t, `{"users": [{"id": "lite"}, {"id": "peer"}],
		"policies": [
			{"id": "audit", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:audit:read"], "banks": ["*"]}]}},
			{"id": "attach", "document": {"version": "2026-03-24", "statements": [{"effect": "allow", "actions": ["iam:attachments:write"], "banks": ["*"]}]}}],
		"attachments": [{"policy_id": "attach", "principal_type": "user", "principal_id": "lite"}]}`)
	attach := func(policy string) error {
		return h.store.Atomically(t.Context(), func(ctx context.Context, tx svc.Store) error {
			to := svc.GrantedTo{Type: svc.GrantedToUser, ID: "peer"}
			return h.WithTx(tx).Policies.Attach(ctx, user("lite"), svc.Attachment{PolicyID: policy, Principal: to})
		})
	}
	is.Equal(svc.ErrorCode(attach("audit")), svc.CodeForbidden)
	is.True(!must(h.Decide(t.Context(), user("peer"), "iam:audit:read", "*", svc.Context{})).Allowed())
	is.NoErr(attach("attach"))
}
