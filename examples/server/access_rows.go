package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"iter"
	"os"

	"github.com/extsvc/svc"
	svcclient "github.com/extsvc/svc/client"
)

// The rows of access as the API shows them.
type (
	userRow struct {
		ID          string  `json:"id"`
		DisplayName string  `json:"display_name"`
		Email       *string `json:"email"`
		IsActive    bool    `json:"is_active"`
	}
	groupRow struct {
		ID          string   `json:"id"`
		DisplayName string   `json:"display_name"`
		Members     []string `json:"members,omitempty"`
	}
	policyRow struct {
		ID          string          `json:"id"`
		DisplayName string          `json:"display_name"`
		Document    json.RawMessage `json:"document"`
		IsBuiltin   bool            `json:"is_builtin"`
	}
	attachmentRow struct {
		PolicyID      string `json:"policy_id"`
		PrincipalType string `json:"principal_type"`
		PrincipalID   string `json:"principal_id"`
		Priority      int64  `json:"priority"`
	}
	accountRow struct {
		ID              string  `json:"id"`
		OwnerUserID     string  `json:"owner_user_id"`
		DisplayName     string  `json:"display_name"`
		IsActive        bool    `json:"is_active"`
		ScopingPolicyID *string `json:"scoping_policy_id"`
	}
	bankRow struct {
		BankID   string          `json:"bank_id"`
		Document json.RawMessage `json:"document"`
	}
)

func ofUser(u svc.User) userRow { return userRow{u.ID, u.DisplayName, u.Email, !u.Inactive} }

func ofGroup(g svc.Group) groupRow { return groupRow{g.ID, g.DisplayName, nil} }

func ofPolicy(p svc.Policy) policyRow {
	return policyRow{p.ID, p.DisplayName, p.Document, p.Builtin()}
}

func ofAttachment(a svc.Attachment) attachmentRow {
	return attachmentRow{a.PolicyID, a.Principal.Type, a.Principal.ID, a.Priority}
}

func ofAccount(a svc.ServiceAccount) accountRow {
	return accountRow{a.ID, a.OwnerUserID, a.DisplayName, !a.Inactive, orNil(a.ScopingPolicyID)}
}

func orNil(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// document reads a document from a file; "-" is the standard input.
func document(file string) (json.RawMessage, error) {
	if file == "-" {
		return io.ReadAll(os.Stdin)
	}
	return os.ReadFile(file)
}

func nameFlag(flags *flag.FlagSet) *string {
	return flags.String("display-name", "", "the `NAME` to show; without it, the id")
}

func activeFlag(flags *flag.FlagSet) *bool {
	return flags.Bool("active", true, "whether it may act; -active=false suspends it")
}

var userCommands = []rows{
	{name: "user list", about: "list the users", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			all := ask(t, func(s *svc.Service, by svc.Principal) iter.Seq2[svc.User, error] {
				return s.Users.List(ctx, by, svc.UserQuery{})
			},
				func(r *svcclient.Client) iter.Seq2[svc.User, error] { return r.Users.List(ctx, svc.UserQuery{}) })
			return show(c, all, "ID\tNAME\tEMAIL\tACTIVE", func(u userRow) []any { return []any{u.ID, u.DisplayName, u.Email, u.IsActive} }, ofUser)
		}
	}},
	{name: "user show", takes: "USER", about: "show a user", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.User] { return of(s.Users.Read(ctx, by, c.operand)) },
				func(r *svcclient.Client) result[svc.User] { return of(r.Users.Read(ctx, c.operand)) })
			if r.err != nil {
				return r.err
			}
			return showOne(c, ofUser(r.value))
		}
	}},
	{name: "user add", takes: "USER", about: "add a user", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name, email, active := nameFlag(flags), flags.String("email", "", "the `ADDRESS` of the user"), activeFlag(flags)
		return func(ctx context.Context, t target) error {
			user := svc.User{ID: c.operand, DisplayName: *name, Email: c.text("email", email), Inactive: !*active}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.User] { return of(s.Users.Create(ctx, by, user)) },
				func(r *svcclient.Client) result[svc.User] { return of(r.Users.Create(ctx, user)) })
			if r.err != nil {
				return r.err
			}
			return c.done("added user %s", c.operand)
		}
	}},
	{name: "user set", takes: "USER", about: "change a user", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name, email, active := nameFlag(flags), flags.String("email", "", "the `ADDRESS` of the user; empty for none"), activeFlag(flags)
		return func(ctx context.Context, t target) error {
			patch := svc.UserPatch{DisplayName: c.text("display-name", name), Email: c.nullable("email", email), Inactive: c.inactive(active)}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.User] {
				return of(s.Users.Patch(ctx, by, c.operand, patch))
			},
				func(r *svcclient.Client) result[svc.User] { return of(r.Users.Patch(ctx, c.operand, patch)) })
			if r.err != nil {
				return r.err
			}
			return c.done("changed user %s", c.operand)
		}
	}},
	removal("user remove", "USER", "remove a user with all that is the user's; its keys are revoked", "removed user %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error {
			return s.Users.Delete(ctx, by, id)
		},
		func(ctx context.Context, r *svcclient.Client, id string) error { return r.Users.Delete(ctx, id) }),
}

// removal returns a command that removes the row of its operand.
func removal(
	name, takes, about, done string,
	local func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error,
	far func(ctx context.Context, r *svcclient.Client, id string) error,
) rows {
	return rows{name: name, takes: takes, about: about, setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			err := ask(t, func(s *svc.Service, by svc.Principal) error { return local(ctx, s, by, c.operand) },
				func(r *svcclient.Client) error { return far(ctx, r, c.operand) })
			if err != nil {
				return err
			}
			return c.done(done, c.operand)
		}
	}}
}

var groupCommands = []rows{
	{name: "group list", about: "list the groups", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			all := ask(t, func(s *svc.Service, by svc.Principal) iter.Seq2[svc.Group, error] {
				return s.Groups.List(ctx, by, svc.GroupQuery{})
			},
				func(r *svcclient.Client) iter.Seq2[svc.Group, error] { return r.Groups.List(ctx, svc.GroupQuery{}) })
			return show(c, all, "ID\tNAME", func(g groupRow) []any { return []any{g.ID, g.DisplayName} }, ofGroup)
		}
	}},
	{name: "group show", takes: "GROUP", about: "show a group with its members", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Group] { return of(s.Groups.Read(ctx, by, c.operand)) },
				func(r *svcclient.Client) result[svc.Group] { return of(r.Groups.Read(ctx, c.operand)) })
			if r.err != nil {
				return r.err
			}
			row := ofGroup(r.value)
			for member, err := range ask(t,
				func(s *svc.Service, by svc.Principal) iter.Seq2[string, error] {
					return s.Groups.Members(ctx, by, c.operand, svc.RowQuery{})
				},
				func(r *svcclient.Client) iter.Seq2[string, error] {
					return r.Groups.Members(ctx, c.operand, svc.RowQuery{})
				}) {
				if err != nil {
					return err
				}
				row.Members = append(row.Members, member)
			}
			return showOne(c, row)
		}
	}},
	{name: "group add", takes: "GROUP", about: "add a group", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name := nameFlag(flags)
		return func(ctx context.Context, t target) error {
			group := svc.Group{ID: c.operand, DisplayName: *name}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Group] { return of(s.Groups.Create(ctx, by, group)) },
				func(r *svcclient.Client) result[svc.Group] { return of(r.Groups.Create(ctx, group)) })
			if r.err != nil {
				return r.err
			}
			return c.done("added group %s", c.operand)
		}
	}},
	{name: "group set", takes: "GROUP", about: "give a group another name", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name := nameFlag(flags)
		return func(ctx context.Context, t target) error {
			patch := svc.GroupPatch{DisplayName: c.text("display-name", name)}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Group] {
				return of(s.Groups.Patch(ctx, by, c.operand, patch))
			},
				func(r *svcclient.Client) result[svc.Group] { return of(r.Groups.Patch(ctx, c.operand, patch)) })
			if r.err != nil {
				return r.err
			}
			return c.done("changed group %s", c.operand)
		}
	}},
	removal("group remove", "GROUP", "remove a group", "removed group %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error {
			return s.Groups.Delete(ctx, by, id)
		},
		func(ctx context.Context, r *svcclient.Client, id string) error { return r.Groups.Delete(ctx, id) }),
	membership("group add-member", "add a user to a group", "added %s to group %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, group, user string) error {
			return s.Groups.AddMembers(ctx, by, group, user)
		},
		func(ctx context.Context, r *svcclient.Client, group, user string) error {
			return r.Groups.AddMember(ctx, group, user)
		}),
	membership("group remove-member", "take a user out of a group", "took %s out of group %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, group, user string) error {
			return s.Groups.RemoveMembers(ctx, by, group, user)
		},
		func(ctx context.Context, r *svcclient.Client, group, user string) error {
			return r.Groups.RemoveMember(ctx, group, user)
		}),
}

func membership(
	name, about, done string,
	local func(ctx context.Context, s *svc.Service, by svc.Principal, group, user string) error,
	far func(ctx context.Context, r *svcclient.Client, group, user string) error,
) rows {
	return rows{name: name, takes: "GROUP USER", about: about, setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			err := ask(t, func(s *svc.Service, by svc.Principal) error { return local(ctx, s, by, c.operand, c.second) },
				func(r *svcclient.Client) error { return far(ctx, r, c.operand, c.second) })
			if err != nil {
				return err
			}
			return c.done(done, c.second, c.operand)
		}
	}}
}

var policyCommands = []rows{
	{name: "policy list", about: "list the access policies", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			all := ask(t, func(s *svc.Service, by svc.Principal) iter.Seq2[svc.Policy, error] {
				return s.Policies.List(ctx, by, svc.RowQuery{})
			},
				func(r *svcclient.Client) iter.Seq2[svc.Policy, error] { return r.Policies.List(ctx, svc.RowQuery{}) })
			return show(c, all, "ID\tNAME\tBUILT IN", func(p policyRow) []any { return []any{p.ID, p.DisplayName, p.IsBuiltin} }, ofPolicy)
		}
	}},
	{name: "policy show", takes: "POLICY", about: "show a policy", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Policy] {
				return of(s.Policies.Read(ctx, by, c.operand))
			},
				func(r *svcclient.Client) result[svc.Policy] { return of(r.Policies.Read(ctx, c.operand)) })
			if r.err != nil {
				return r.err
			}
			return showOne(c, ofPolicy(r.value))
		}
	}},
	{name: "policy add", takes: "POLICY FILE", about: "add a policy with the document in FILE", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name := nameFlag(flags)
		return func(ctx context.Context, t target) error {
			text, err := document(c.second)
			if err != nil {
				return err
			}
			policy := svc.Policy{ID: c.operand, DisplayName: *name, Document: text}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Policy] {
				return of(s.Policies.Create(ctx, by, policy))
			},
				func(r *svcclient.Client) result[svc.Policy] { return of(r.Policies.Create(ctx, policy)) })
			if r.err != nil {
				return r.err
			}
			return c.done("added policy %s", c.operand)
		}
	}},
	{name: "policy set", takes: "POLICY FILE", about: "give a policy the document in FILE", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name := nameFlag(flags)
		return func(ctx context.Context, t target) error {
			text, err := document(c.second)
			if err != nil {
				return err
			}
			patch := svc.PolicyPatch{DisplayName: c.text("display-name", name), Document: text}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Policy] {
				return of(s.Policies.Patch(ctx, by, c.operand, patch))
			},
				func(r *svcclient.Client) result[svc.Policy] { return of(r.Policies.Patch(ctx, c.operand, patch)) })
			if r.err != nil {
				return r.err
			}
			return c.done("changed policy %s", c.operand)
		}
	}},
	removal("policy remove", "POLICY", "remove a policy that nothing uses", "removed policy %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error {
			return s.Policies.Delete(ctx, by, id)
		},
		func(ctx context.Context, r *svcclient.Client, id string) error { return r.Policies.Delete(ctx, id) }),
	{name: "attachment list", about: "list who has which policy", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			all := ask(t,
				func(s *svc.Service, by svc.Principal) iter.Seq2[svc.Attachment, error] {
					return s.Policies.Attachments(ctx, by, svc.AttachmentQuery{})
				},
				func(r *svcclient.Client) iter.Seq2[svc.Attachment, error] {
					return r.Policies.Attachments(ctx, svc.AttachmentQuery{})
				})
			return show(c, all, "POLICY\tTO\tID\tPRIORITY", func(a attachmentRow) []any {
				return []any{a.PolicyID, a.PrincipalType, a.PrincipalID, a.Priority}
			}, ofAttachment)
		}
	}},
	attaching("attachment add", "attach a policy", "attached %s to %s %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, a svc.Attachment) error {
			return s.Policies.Attach(ctx, by, a)
		},
		func(ctx context.Context, r *svcclient.Client, a svc.Attachment) error {
			return r.Policies.Attach(ctx, a)
		}),
	attaching("attachment remove", "detach a policy", "detached %s from %s %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, a svc.Attachment) error {
			return s.Policies.Detach(ctx, by, svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal})
		},
		func(ctx context.Context, r *svcclient.Client, a svc.Attachment) error {
			return r.Policies.Detach(ctx, svc.AttachmentKey{PolicyID: a.PolicyID, Principal: a.Principal})
		}),
}

func attaching(
	name, about, done string,
	local func(ctx context.Context, s *svc.Service, by svc.Principal, a svc.Attachment) error,
	far func(ctx context.Context, r *svcclient.Client, a svc.Attachment) error,
) rows {
	return rows{name: name, takes: "POLICY", about: about, setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		user, group := flags.String("user", "", "the `ID` of a user"), flags.String("group", "", "the `ID` of a group")
		priority := flags.Int("priority", 0, "which `NUMBER` wins where parameters differ: the greater")
		return func(ctx context.Context, t target) error {
			a := svc.Attachment{PolicyID: c.operand, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: *user}, Priority: int64(*priority)}
			if (*user == "") == (*group == "") {
				return usageError(name + " needs exactly one of -user ID and -group ID")
			} else if *user == "" {
				a.Principal = svc.GrantedTo{Type: svc.GrantedToGroup, ID: *group}
			}
			err := ask(t, func(s *svc.Service, by svc.Principal) error { return local(ctx, s, by, a) },
				func(r *svcclient.Client) error { return far(ctx, r, a) })
			if err != nil {
				return err
			}
			return c.done(done, c.operand, a.Principal.Type, a.Principal.ID)
		}
	}}
}

var accountCommands = []rows{
	{name: "account list", about: "list the service accounts", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			all := ask(t,
				func(s *svc.Service, by svc.Principal) iter.Seq2[svc.ServiceAccount, error] {
					return s.ServiceAccounts.List(ctx, by, svc.ServiceAccountQuery{})
				},
				func(r *svcclient.Client) iter.Seq2[svc.ServiceAccount, error] {
					return r.ServiceAccounts.List(ctx, svc.ServiceAccountQuery{})
				})
			return show(c, all, "ID\tNAME\tOWNER\tLIMITED BY\tACTIVE", func(a accountRow) []any {
				return []any{a.ID, a.DisplayName, a.OwnerUserID, a.ScopingPolicyID, a.IsActive}
			}, ofAccount)
		}
	}},
	{name: "account show", takes: "ACCOUNT", about: "show a service account", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t,
				func(s *svc.Service, by svc.Principal) result[svc.ServiceAccount] {
					return of(s.ServiceAccounts.Read(ctx, by, c.operand))
				},
				func(r *svcclient.Client) result[svc.ServiceAccount] {
					return of(r.ServiceAccounts.Read(ctx, c.operand))
				})
			if r.err != nil {
				return r.err
			}
			return showOne(c, ofAccount(r.value))
		}
	}},
	{name: "account add", takes: "ACCOUNT", about: "add a service account", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name, owner, scoping := nameFlag(flags), flags.String("owner", "", "the `ID` of the user who owns it"), scopingFlag(flags)
		return func(ctx context.Context, t target) error {
			account := svc.ServiceAccount{ID: c.operand, DisplayName: *name, OwnerUserID: *owner, ScopingPolicyID: *scoping}
			r := ask(t,
				func(s *svc.Service, by svc.Principal) result[svc.ServiceAccount] {
					return of(s.ServiceAccounts.Create(ctx, by, account))
				},
				func(r *svcclient.Client) result[svc.ServiceAccount] {
					return of(r.ServiceAccounts.Create(ctx, account))
				})
			if r.err != nil {
				return r.err
			}
			return c.done("added service account %s", c.operand)
		}
	}},
	{name: "account set", takes: "ACCOUNT", about: "change a service account", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		name, scoping, active := nameFlag(flags), scopingFlag(flags), activeFlag(flags)
		return func(ctx context.Context, t target) error {
			patch := svc.ServiceAccountPatch{DisplayName: c.text("display-name", name), ScopingPolicyID: c.nullable("scoping-policy", scoping), Inactive: c.inactive(active)}
			r := ask(t,
				func(s *svc.Service, by svc.Principal) result[svc.ServiceAccount] {
					return of(s.ServiceAccounts.Patch(ctx, by, c.operand, patch))
				},
				func(r *svcclient.Client) result[svc.ServiceAccount] {
					return of(r.ServiceAccounts.Patch(ctx, c.operand, patch))
				})
			if r.err != nil {
				return r.err
			}
			return c.done("changed service account %s", c.operand)
		}
	}},
	removal("account remove", "ACCOUNT", "remove a service account; its keys are revoked", "removed service account %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error {
			return s.ServiceAccounts.Delete(ctx, by, id)
		},
		func(ctx context.Context, r *svcclient.Client, id string) error {
			return r.ServiceAccounts.Delete(ctx, id)
		}),
}

func scopingFlag(flags *flag.FlagSet) *string {
	return flags.String("scoping-policy", "", "the `ID` of a policy that limits it; empty for none")
}

var bankCommands = []rows{
	{name: "bank list", about: "list the banks that have a policy", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.Bundle] { return of(s.Access.Export(ctx, by)) },
				func(r *svcclient.Client) result[svc.Bundle] { return of(r.Access.Export(ctx)) })
			return show(c, sequence(r.value.BankPolicies, r.err), "BANK", func(b bankRow) []any { return []any{b.BankID} }, ofBank)
		}
	}},
	{name: "bank show", takes: "BANK", about: "show the policy of a bank", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.BankPolicy] {
				return of(s.Banks.Policy(ctx, by, c.operand))
			},
				func(r *svcclient.Client) result[svc.BankPolicy] { return of(r.Banks.Policy(ctx, c.operand)) })
			if r.err != nil {
				return r.err
			}
			return showOne(c, ofBank(r.value))
		}
	}},
	{name: "bank set", takes: "BANK FILE", about: "give a bank the policy in FILE", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			text, err := document(c.second)
			if err != nil {
				return err
			}
			policy := svc.BankPolicy{BankID: c.operand, Document: text}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.BankPolicy] {
				return of(s.Banks.SetPolicy(ctx, by, policy))
			},
				func(r *svcclient.Client) result[svc.BankPolicy] { return of(r.Banks.SetPolicy(ctx, policy)) })
			if r.err != nil {
				return r.err
			}
			return c.done("changed the policy of bank %s", c.operand)
		}
	}},
	removal("bank remove", "BANK", "remove the policy of a bank", "removed the policy of bank %s",
		func(ctx context.Context, s *svc.Service, by svc.Principal, id string) error {
			return s.Banks.RemovePolicy(ctx, by, id)
		},
		func(ctx context.Context, r *svcclient.Client, id string) error { return r.Banks.RemovePolicy(ctx, id) }),
}

func ofBank(b svc.BankPolicy) bankRow { return bankRow{b.BankID, b.Document} }
