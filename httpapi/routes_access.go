package httpapi

import "slices"

// pageKeys are the keys of a query for a list of rows.
var pageKeys = []string{"limit", "cursor"}

// accessRoutes are the endpoints that [Options].HideAccess removes.
var accessRoutes = slices.Concat(
	[]route{
		{Route{"GET", "/users"}, (*Handler).listUsers, []string{"q", "limit", "cursor"}},
		{Route{"POST", "/users"}, (*Handler).createUser, nil},
		{Route{"GET", "/users/{user_id}"}, (*Handler).user, nil},
		{Route{"PUT", "/users/{user_id}"}, (*Handler).patchUser, nil},
		{Route{"DELETE", "/users/{user_id}"}, (*Handler).deleteUser, nil},
		{Route{"GET", "/users/{user_id}/channels"}, (*Handler).listChannels, pageKeys},
		{Route{"POST", "/users/{user_id}/channels"}, (*Handler).addChannel, nil},
		{
			Route{"DELETE", "/users/{user_id}/channels/{provider}/{sender_id}"},
			(*Handler).removeChannel, nil,
		},

		{Route{"GET", "/groups"}, (*Handler).listGroups, []string{"user_id", "limit", "cursor"}},
		{Route{"POST", "/groups"}, (*Handler).createGroup, nil},
		{Route{"GET", "/groups/{group_id}"}, (*Handler).group, nil},
		{Route{"PUT", "/groups/{group_id}"}, (*Handler).patchGroup, nil},
		{Route{"DELETE", "/groups/{group_id}"}, (*Handler).deleteGroup, nil},
		{Route{"GET", "/groups/{group_id}/members"}, (*Handler).listMembers, pageKeys},
		{Route{"POST", "/groups/{group_id}/members"}, (*Handler).addMember, nil},
		{Route{"DELETE", "/groups/{group_id}/members/{user_id}"}, (*Handler).removeMember, nil},

		{Route{"GET", "/policies"}, (*Handler).listPolicies, pageKeys},
		{Route{"POST", "/policies"}, (*Handler).createPolicy, nil},
		{Route{"GET", "/policies/{policy_id}"}, (*Handler).policy, nil},
		{Route{"PUT", "/policies/{policy_id}"}, (*Handler).patchPolicy, nil},
		{Route{"DELETE", "/policies/{policy_id}"}, (*Handler).deletePolicy, nil},
		{Route{"GET", "/policy-attachments"}, (*Handler).listAttachments, []string{
			"policy_id", "principal_type", "principal_id", "limit", "cursor",
		}},
		{Route{"PUT", "/policy-attachments"}, (*Handler).attachPolicy, nil},
		{
			Route{"DELETE", "/policy-attachments/{policy_id}/{principal_type}/{principal_id}"},
			(*Handler).detachPolicy, nil,
		},

		{Route{"GET", "/service-accounts"}, (*Handler).listServiceAccounts, []string{
			"owner_user_id", "limit", "cursor",
		}},
		{Route{"POST", "/service-accounts"}, (*Handler).createServiceAccount, nil},
		{Route{"GET", "/service-accounts/{sa_id}"}, (*Handler).serviceAccount, nil},
		{Route{"PUT", "/service-accounts/{sa_id}"}, (*Handler).patchServiceAccount, nil},
		{Route{"DELETE", "/service-accounts/{sa_id}"}, (*Handler).deleteServiceAccount, nil},
	},
	keyRoutes("/service-accounts/{sa_id}/keys"),
	[]route{
		{Route{"GET", "/admin/access-bundle"}, (*Handler).exportAccess, nil},
		{Route{"POST", "/admin/access-bundle"}, (*Handler).writeAccess, []string{
			"dry_run", "prune", "revision",
		}},

		{Route{"POST", "/banks"}, (*Handler).createBank, nil},
		{Route{"GET", "/banks/policy"}, (*Handler).policyOfBank, []string{"bank"}},
		{Route{"PUT", "/banks/policy"}, (*Handler).setPolicyOfBank, []string{"bank"}},
		{Route{"DELETE", "/banks/policy"}, (*Handler).removePolicyOfBank, []string{"bank"}},
		{Route{"GET", "/banks/{bank_id}/policy"}, (*Handler).policyOfBank, nil},
		{Route{"PUT", "/banks/{bank_id}/policy"}, (*Handler).setPolicyOfBank, nil},
		{Route{"DELETE", "/banks/{bank_id}/policy"}, (*Handler).removePolicyOfBank, nil},

		{Route{"GET", "/me"}, (*Handler).me, nil},
		{Route{"GET", "/me/service-accounts"}, (*Handler).listServiceAccounts, pageKeys},
		{Route{"POST", "/me/service-accounts"}, (*Handler).createMyServiceAccount, nil},
		{Route{"GET", "/me/service-accounts/{sa_id}"}, (*Handler).serviceAccount, nil},
		{Route{"PUT", "/me/service-accounts/{sa_id}"}, (*Handler).renameMyServiceAccount, nil},
		{Route{"DELETE", "/me/service-accounts/{sa_id}"}, (*Handler).deleteServiceAccount, nil},
	},
	keyRoutes("/me/service-accounts/{sa_id}/keys"),
)
