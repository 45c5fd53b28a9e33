package adminpage

import (
	"github.com/extsvc/svc"
	"github.com/extsvc/svc/httpapi"
	"github.com/extsvc/svc/internal/body"
)

// maxForm limits the body of a form, in bytes: a bundle to preview has the limit of the interface.
const maxForm = httpapi.DefaultMaxBody + 64<<10

// maxSignIn limits the body of the sign-in, in bytes: a bearer, and an address to come back to.
const maxSignIn = 64 << 10

// The codes that only HTTP has, as package httpapi has them.
const (
	codeMethodNotAllowed svc.Code = "method_not_allowed"
	codeLimited          svc.Code = "rate_limited"
)

// receive reads the form of a caller who is signed in, if the address takes one. The form can
// arrive long after the headers: in the meantime no tenant is held, and the session may end. So
// serve authenticates the caller a second time. false: the request is answered,
// or err says why not.
func (h *Handler) receive(v *visit, path string) (ok bool, err error) {
	if v.r.ContentLength == 0 {
		return true, nil
	}
	takes := false
	err = h.in(v, false, func() error {
		if err := v.authenticate(); err != nil {
			return err
		}
		_, _, noRoute := v.find(path)
		ok, takes, v.sender = true, noRoute == nil, v.by.Identity()
		return nil
	})
	v.h, v.by, v.in = h, svc.Principal{}, session{}
	if takes {
		v.readForm(maxForm)
	}
	return ok, err
}

// readForm reads the form of the request.
func (v *visit) readForm(limit int64) {
	v.form, v.wrong = body.Form(v.w, v.r, limit)
}
