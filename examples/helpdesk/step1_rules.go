package main

import (
	"github.com/extsvc/svc"
	"github.com/extsvc/svc/parameter"
)

// Step 1: the rules. A bank of svc is a queue here: its name is that of the team that answers it.

// The actions of the host.
const (
	actionOpen   = "ticket:open"
	actionRead   = "ticket:read"
	actionAnswer = "ticket:answer"
)

// parameters are what a policy says in addition to yes. When several policies allow a request, the
// greatest limit counts, and the columns of all. A narrowed key has the lesser limit, and the
// columns that its own policy lists as well.
var parameters = []parameter.Definition{
	{Name: "row_limit", Type: parameter.Integer,
		Merge: parameter.Greatest, Narrow: parameter.Lesser},
	{Name: "columns", Type: parameter.TextList,
		Merge: parameter.Union, Narrow: parameter.Intersect},
	{Name: "priority", Type: parameter.Level, Levels: priorities,
		Merge: parameter.Greatest, Narrow: parameter.Lesser},
}

// rules are the policies, the teams, and which team has which policy. ${group} is the team through
// which a person has the policy: so "agents" is one policy for all teams.
var rules = svc.Bundle{
	Policies: []svc.Policy{
		allow("customers", []string{actionOpen}, "*", map[string]any{"priority": "normal"}),
		allow("agents", []string{actionRead, actionAnswer}, "${group}", map[string]any{
			"row_limit": 20, "columns": []string{"subject", "text", "priority", "answer"},
		}),
		allow("leads", []string{"ticket:*"}, "*", map[string]any{
			"row_limit": 500, "priority": "urgent",
			"columns": []string{"subject", "text", "priority", "answer", "customer"},
		}),
		allow("wallboard", []string{actionRead}, "*", map[string]any{
			"row_limit": 5, "columns": []string{"subject"},
		}),
	},
	Groups: []svc.Group{{ID: "customers"}, {ID: "leads"}, {ID: "billing"}, {ID: "network"}},
	Attachments: []svc.Attachment{
		attach("customers", "customers"), attach("leads", "leads"),
		attach("agents", "billing"), attach("agents", "network"),
		attach(svc.PolicyIAMAdmin, "leads"), // they administer access
	},
}

func allow(id string, actions []string, queue string, set map[string]any) svc.Policy {
	document := svc.Document{Statements: []svc.Statement{
		{Effect: svc.EffectAllow, Actions: actions, Banks: []string{queue}, Set: set},
	}}
	return svc.Policy{ID: id, Document: document.JSON()}
}

func attach(policy, team string) svc.Attachment {
	to := svc.GrantedTo{Type: svc.GrantedToGroup, ID: team}
	return svc.Attachment{PolicyID: policy, Principal: to}
}
