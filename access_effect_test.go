package svc_test

import (
	"context"
	_ "embed"

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

func attaches(policy, kind, id string) does {
	return func(a act) error {
		return a.Policies.Attach(a.ctx, a.by, svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: kind, ID: id}})
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

func narrows(user, policy string) does {
	return func(a act) error {
		return errorOf(a.Keys.Issue(a.ctx, a.by, svc.Identity{Kind: svc.KindUser, ID: user}, svc.NewAPIKey{ScopingPolicyID: policy}))
	}
}

func attachmentOf(policy, group string) svc.AttachmentKey {
	return svc.AttachmentKey{PolicyID: policy, Principal: svc.GrantedTo{Type: svc.GrantedToGroup, ID: group}}
}
