package policies_test

import (
	"context"
	"log/slog"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/store/memstore"
)

// service decides as a host's call does: for a principal, with a check that the cached rights are
// still current.
type service struct {
	*svc.Service
	user svc.Principal
}

func (s service) Decide(action, bank string) bool {
	d, err := s.Service.Decide(context.Background(), s.user, action, bank, svc.Context{})
	return err == nil && d.Allowed()
}

func newService(w *workload) (engine, error) {
	made, err := svc.New(svc.Config{Store: memstore.New(), Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	user := svc.Principal{Kind: svc.KindUser, ID: "user"}
	return service{made, user}, made.Access.Apply(context.Background(), svc.Host, bundleOf(user.ID, w.subject.Grants))
}

func bundleOf(user string, grants []policy.Grant) svc.Bundle {
	b, groups := svc.Bundle{Users: []svc.User{{ID: user}}}, map[string]bool{}
	for _, g := range grants {
		to := svc.GrantedTo{Type: svc.GrantedToUser, ID: user}
		if g.Group != "" {
			to = svc.GrantedTo{Type: svc.GrantedToGroup, ID: g.Group}
			if !groups[g.Group] {
				groups[g.Group] = true
				b.Groups = append(b.Groups, svc.Group{ID: g.Group, Members: []string{user}})
			}
		}
		b.Policies = append(b.Policies, svc.Policy{ID: g.PolicyID, Document: g.Document})
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: g.PolicyID, Principal: to, Priority: g.Priority})
	}
	return b
}
