package action_test

import (
	"fmt"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/action"
)

// A host vouches for an operator of its own, who may read users and the kept events.
func Example() {
	operator := svc.Principal{
		Kind: svc.KindUser, ID: "ops", Actions: []string{action.UsersRead, action.AuditRead},
	}
	fmt.Println(operator.ID, operator.Actions)
	// Output: ops [iam:users:read iam:audit:read]
}
