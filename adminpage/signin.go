package adminpage

import (
	"net/http"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/mount"
	"github.com/extsvc/svc/internal/turns"
)

const signInPath = "/sign-in"

// maxSignIn limits the body of the sign-in, in bytes: a bearer, and an address to come back to.
const maxSignIn = 64 << 10

// signInView is what the sign-in shows.
type signInView struct {
	To string // the address below the prefix to come back to
	// Again says that the browser kept the cookie back because a link of another site led here: the
	// page asks once more, from itself.
	Again bool
}

// showSignIn answers 401 with the sign-in, which leads back to this address.
func (v *visit) showSignIn(refused bool) {
	defer v.h.turns.Pause(v.Context(), turns.Line{})()
	show := signInView{To: v.address()}
	if refused {
		show.To = v.PostForm.Get("to")
	} else {
		show.Again = v.Method != http.MethodPost && v.Header.Get("Sec-Fetch-Site") == "cross-site" &&
			v.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
	page := view{Template: "sign-in", Title: "Sign in", Body: show}
	if refused {
		page.Alerts = []string{"This key was not accepted."}
	}
	v.w.Header().Set("WWW-Authenticate", `Bearer realm="svc"`)
	v.render(http.StatusUnauthorized, page)
}

// address returns the address of the request below the prefix, with its query.
func (v *visit) address() string {
	address := strings.TrimPrefix(v.h.relative(v.Request), "/")
	if v.URL.RawQuery != "" {
		address += "?" + v.URL.RawQuery
	}
	return address
}

// signIn checks a bearer and sets the cookie.
func (v *visit) signIn() error {
	if err := v.ParseForm(); err != nil {
		return tooLarge(err)
	}
	bearer := strings.TrimSpace(v.PostForm.Get("key"))
	if bearer == "" || len(bearer) > maxBearer {
		v.showSignIn(true)
		return nil
	}
	_, err := v.h.service.Authenticate(v.Context(), bearer)
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		v.showSignIn(true)
		return nil
	} else if err != nil {
		return err
	}
	v.h.setCookie(v.w, v.Request, v.h.sessions.encode(v.h.tenant, bearer))
	v.redirect(v.h.knownAddress(v.PostForm.Get("to")))
	return nil
}

// knownAddress returns an address if it leads to a page, else "". It never leads to another site.
func (h *Handler) knownAddress(address string) string {
	path, _, _ := strings.Cut(address, "?")
	segments := mount.Segments("/" + path)
	for i, route := range h.routes {
		if route.method == http.MethodGet && h.patterns[i].Covers(segments) && path != "" {
			return address
		}
	}
	return ""
}

// signOut ends the session, for every copy of its cookie.
func (v *visit) signOut() error {
	if v.in.bearer != "" {
		v.h.sessions.end(v.in)
	}
	v.h.setCookie(v.w, v.Request, "")
	v.redirect("")
	return nil
}
