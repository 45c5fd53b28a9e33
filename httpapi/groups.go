package httpapi

import (
	"iter"
	"net/http"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

var (
	groupForm  = byID(wireGroup, func(g svc.Group) string { return g.ID })
	memberForm = byID(
		func(user string) encoded { return encoded{wire.Member{UserID: user}} },
		func(user string) string { return user },
	)
)

func (h *Handler) listGroups(w http.ResponseWriter, r *request) error {
	return sendRows(w, r, groupForm, func(q svc.RowQuery) iter.Seq2[svc.Group, error] {
		query := svc.GroupQuery{RowQuery: q, Member: r.query.text("user_id")}
		return h.service.Groups.List(r.Context(), r.by, query)
	})
}

func (h *Handler) createGroup(w http.ResponseWriter, r *request) error {
	return createRow(h, w, r, wireGroup, func(in wire.CreateGroup) (svc.Group, error) {
		name, err := filled("/display_name", in.DisplayName)
		return svc.Group{ID: in.ID, DisplayName: name}, err
	}, h.service.Groups.Create)
}

func (h *Handler) group(w http.ResponseWriter, r *request) error {
	group, err := h.service.Groups.Read(r.Context(), r.by, r.params["group_id"])
	return sendIfChanged(w, r, group, err, wireGroup)
}

func (h *Handler) patchGroup(w http.ResponseWriter, r *request) error {
	return patchRow(h, w, r, r.params["group_id"], wireGroup, func(
		in wire.Rename,
	) (patch svc.GroupPatch, err error) {
		err = required("/display_name", in.DisplayName, &patch.DisplayName)
		return patch, err
	}, h.service.Groups.Patch)
}

func (h *Handler) deleteGroup(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, r.params["group_id"], h.service.Groups.Delete)
}

func (h *Handler) listMembers(w http.ResponseWriter, r *request) error {
	return sendRows(w, r, memberForm, func(q svc.RowQuery) iter.Seq2[string, error] {
		return h.service.Groups.Members(r.Context(), r.by, r.params["group_id"], q)
	})
}

// firstMember is the field of an error about the one member of a request.
const firstMember = "/members/0"

func (h *Handler) addMember(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.Member](h, w, r)
	if err != nil {
		return err
	}
	group := r.params["group_id"]
	if err := h.service.Groups.AddMembers(r.Context(), r.by, group, in.UserID); err != nil {
		return moved(err, firstMember, "/user_id")
	}
	return sendJSON(w, http.StatusCreated, wire.Membership{GroupID: group, UserID: in.UserID})
}

func (h *Handler) removeMember(w http.ResponseWriter, r *request) error {
	group, user := r.params["group_id"], r.params["user_id"]
	err := h.service.Groups.RemoveMembers(r.Context(), r.by, group, user)
	return sendNothing(w, moved(err, firstMember, "user_id"))
}

func wireGroup(g svc.Group) encoded {
	return encoded{wire.Group{ID: g.ID, DisplayName: g.DisplayName}}
}
