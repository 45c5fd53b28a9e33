package httpapi

import (
	"iter"
	"net/http"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

var (
	policyForm = byID(wirePolicy, func(p svc.Policy) string { return p.ID })
	// Attachments are listed by principal type, principal id and policy.
	attachmentForm = rowForm[svc.Attachment, encoded]{
		answer: wireAttachment,
		position: func(a svc.Attachment) []string {
			return []string{a.Principal.Type + "/" + a.Principal.ID, a.PolicyID}
		},
		after: func(position []string) string {
			kind, id, _ := strings.Cut(position[0], "/")
			if kind == "" || id == "" || strings.Contains(id, "/") || position[1] == "" {
				return ""
			}
			return position[1] + "/" + position[0]
		},
	}
)

func (h *Handler) listPolicies(w http.ResponseWriter, r *request) error {
	return sendRows(w, r, policyForm, func(q svc.RowQuery) iter.Seq2[svc.Policy, error] {
		return h.service.Policies.List(r.Context(), r.by, q)
	})
}

func (h *Handler) createPolicy(w http.ResponseWriter, r *request) error {
	return createRow(h, w, r, wirePolicy, func(in wire.CreatePolicy) (svc.Policy, error) {
		name, err := filled("/display_name", in.DisplayName)
		return svc.Policy{ID: in.ID, DisplayName: name, Document: in.Document}, err
	}, h.service.Policies.Create)
}

func (h *Handler) policy(w http.ResponseWriter, r *request) error {
	policy, err := h.service.Policies.Read(r.Context(), r.by, r.params["policy_id"])
	return sendIfChanged(w, r, policy, err, wirePolicy)
}

func (h *Handler) patchPolicy(w http.ResponseWriter, r *request) error {
	return patchRow(h, w, r, r.params["policy_id"], wirePolicy, func(
		in wire.PatchPolicy,
	) (patch svc.PolicyPatch, err error) {
		patch.Document = in.Document.Value
		err = required("/display_name", in.DisplayName, &patch.DisplayName)
		if err == nil && in.Document.Null {
			err = svc.Invalid("/document", "must not be null")
		}
		return patch, err
	}, h.service.Policies.Patch)
}

func (h *Handler) deletePolicy(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, r.params["policy_id"], h.service.Policies.Delete)
}

func (h *Handler) listAttachments(w http.ResponseWriter, r *request) error {
	query := svc.AttachmentQuery{
		PolicyID: r.query.text("policy_id"),
		Principal: svc.GrantedTo{
			Type: r.query.text("principal_type"), ID: r.query.text("principal_id"),
		},
	}
	if query.Principal.Type == "" && query.Principal.ID != "" {
		return svc.Invalid("principal_type", "must be given with principal_id")
	} else if query.Principal.Type != "" && query.Principal.ID == "" {
		return svc.Invalid("principal_id", "must be given with principal_type")
	}
	return sendRows(w, r, attachmentForm, func(q svc.RowQuery) iter.Seq2[svc.Attachment, error] {
		query.RowQuery = q
		return h.service.Policies.Attachments(r.Context(), r.by, query)
	})
}

func (h *Handler) attachPolicy(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.PutAttachment](h, w, r)
	if err != nil {
		return err
	}
	attachment := svc.Attachment{
		PolicyID: in.PolicyID, Priority: int64(in.Priority),
		Principal: svc.GrantedTo{Type: in.PrincipalType, ID: in.PrincipalID},
	}
	if err := h.service.Policies.Attach(r.Context(), r.by, attachment); err != nil {
		return err
	}
	return send(w, http.StatusOK, wireAttachment(attachment))
}

func (h *Handler) detachPolicy(w http.ResponseWriter, r *request) error {
	err := h.service.Policies.Detach(r.Context(), r.by, svc.AttachmentKey{
		PolicyID:  r.params["policy_id"],
		Principal: svc.GrantedTo{Type: r.params["principal_type"], ID: r.params["principal_id"]},
	})
	return sendNothing(w, err)
}

func wirePolicy(p svc.Policy) wire.Policy {
	return wire.Policy{
		ID: p.ID, DisplayName: p.DisplayName, Document: p.Document, IsBuiltin: p.Builtin(),
	}
}

func wireAttachment(a svc.Attachment) encoded {
	return encoded{wire.Attachment{
		PolicyID: a.PolicyID, PrincipalType: a.Principal.Type, PrincipalID: a.Principal.ID,
		Priority: a.Priority,
	}}
}
