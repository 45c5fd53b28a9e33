package httpapi

import (
	"cmp"
	"iter"
	"net/http"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

var (
	userForm    = byID(wireUser, func(u svc.User) string { return u.ID })
	channelForm = rowForm[svc.Channel, encoded]{
		answer:   func(c svc.Channel) encoded { return encoded{wire.Channel(c)} },
		position: func(c svc.Channel) []string { return []string{c.Provider, c.SenderID} },
		after: func(position []string) string {
			if position[0] == "" || strings.Contains(position[0], ":") {
				return ""
			}
			return svc.Channel{Provider: position[0], SenderID: position[1]}.String()
		},
	}
)

func (h *Handler) listUsers(w http.ResponseWriter, r *request) error {
	return sendRows(w, r, userForm, func(q svc.RowQuery) iter.Seq2[svc.User, error] {
		query := svc.UserQuery{RowQuery: q, Text: r.query.text("q")}
		return h.service.Users.List(r.Context(), r.by, query)
	})
}

func (h *Handler) createUser(w http.ResponseWriter, r *request) error {
	return createRow(h, w, r, wireUser, func(in wire.CreateUser) (svc.User, error) {
		name, err := filled("/display_name", in.DisplayName)
		return svc.User{
			ID: in.ID, DisplayName: name, Email: in.Email,
			Inactive: in.IsActive != nil && !*in.IsActive,
		}, err
	}, h.service.Users.Create)
}

func (h *Handler) user(w http.ResponseWriter, r *request) error {
	user, err := h.service.Users.Read(r.Context(), r.by, r.params["user_id"])
	return sendIfChanged(w, r, user, err, wireUser)
}

func (h *Handler) patchUser(w http.ResponseWriter, r *request) error {
	return patchRow(h, w, r, r.params["user_id"], wireUser, func(
		in wire.PatchUser,
	) (patch svc.UserPatch, err error) {
		patch.Email = textPatch(in.Email)
		err = cmp.Or(required("/display_name", in.DisplayName, &patch.DisplayName),
			required("/is_active", wire.Not(in.IsActive), &patch.Inactive))
		return patch, err
	}, h.service.Users.Patch)
}

func (h *Handler) deleteUser(w http.ResponseWriter, r *request) error {
	return deleteRow(w, r, r.params["user_id"], h.service.Users.Delete)
}

func (h *Handler) listChannels(w http.ResponseWriter, r *request) error {
	return sendRows(w, r, channelForm, func(q svc.RowQuery) iter.Seq2[svc.Channel, error] {
		return h.service.Users.Channels(r.Context(), r.by, r.params["user_id"], q)
	})
}

func (h *Handler) addChannel(w http.ResponseWriter, r *request) error {
	in, err := decode[wire.Channel](h, w, r)
	if err != nil {
		return err
	}
	user := r.params["user_id"]
	if err := h.service.Users.AddChannel(r.Context(), r.by, user, svc.Channel(in)); err != nil {
		return err
	}
	return sendJSON(w, http.StatusCreated, in)
}

func (h *Handler) removeChannel(w http.ResponseWriter, r *request) error {
	channel := svc.Channel{Provider: r.params["provider"], SenderID: r.params["sender_id"]}
	err := h.service.Users.RemoveChannel(r.Context(), r.by, r.params["user_id"], channel)
	return sendNothing(w, err)
}

func (h *Handler) me(w http.ResponseWriter, r *request) error {
	user, err := h.service.Users.Me(r.Context(), r.by)
	return sendResult(w, user, err, func(u svc.User) wire.Me {
		channel := func(c svc.Channel) wire.Channel { return wire.Channel(c) }
		return wire.Me{User: shortUser(u), Channels: wire.Each(u.Channels, channel)}
	})
}

func shortUser(u svc.User) wire.User {
	return wire.User{
		ID: u.ID, DisplayName: u.DisplayName, Email: u.Email, IsActive: !u.Inactive,
	}
}

func wireUser(u svc.User) encoded { return encoded{shortUser(u)} }
