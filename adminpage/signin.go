package adminpage

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/fairqueue"
)

const signInPath = "/sign-in"

// mark is the parameter of the address that the sign-in leads to. Where a request has the mark and
// no cookie, the browser did not keep the cookie.
const mark = "signed-in"

// These are texts of the sign-in after a failure.
const (
	notAccepted = "This key was not accepted."
	notSent     = "The sign-in has ended, and nothing was changed: sign in, and send the form again."
	notKept     = "Signed in, but the browser did not keep the cookie: open this page over https," +
		" or on the server's own machine, and allow its cookies."
	notKnown = "Signed in, but this process of the server does not know the sign-in: " +
		"all of them need the same SessionKey."
)

var tooLong = fmt.Sprintf(
	"This bearer is too long for the page, whose cookie holds up to %d bytes.", maxBearer)

// signInView is what the sign-in shows.
type signInView struct {
	To string // the address below the prefix to come back to
	// Again says that the browser kept the cookie back because a link of another site led here: the
	// page asks once more, from itself.
	Again bool
}

// askSignIn answers 401 with the sign-in, which leads back to this address.
func (v *visit) askSignIn() {
	show := signInView{To: v.address()}
	show.Again = v.r.Method != http.MethodPost && v.r.Header.Get("Sec-Fetch-Site") == "cross-site" &&
		v.r.Header.Get("Sec-Fetch-Mode") == "navigate"
	switch {
	case v.r.Method == http.MethodPost:
		v.showSignIn(show, notSent)
	case show.Again || !v.isMarked():
		v.showSignIn(show)
	case len(v.h.cookies(v.r)) > 0:
		v.showSignIn(show, notKnown)
	default:
		v.showSignIn(show, notKept)
	}
}

// refuseSignIn answers a sign-in that leads nowhere, and returns nil.
func (v *visit) refuseSignIn(alert string) error {
	v.blame("key", alert)
	v.showSignIn(signInView{To: v.form.Get("to")}, alert)
	return nil
}

func (v *visit) showSignIn(show signInView, alerts ...string) {
	defer v.h.queue.Wait(v.r.Context(), fairqueue.Flow{})()
	v.w.Header().Set("WWW-Authenticate", `Bearer realm="svc"`)
	_ = v.render(view{
		Status:   http.StatusUnauthorized,
		Template: "sign-in", Title: "Sign in", Alerts: alerts, Body: show,
	})
}

// isMarked reports whether a sign-in led to this address.
func (v *visit) isMarked() bool { return v.r.Method != http.MethodPost && v.r.URL.Query().Has(mark) }

// isForeign reports whether another site's link says what a form of these pages has done.
func (v *visit) isForeign() bool {
	site := v.r.Header.Get("Sec-Fetch-Site")
	return (site == "cross-site" || site == "same-site") && v.r.URL.Query().Has("done")
}

// address returns the address of the request below the prefix, with its query but without the mark
// and without what a form has done.
func (v *visit) address() string {
	address := strings.TrimPrefix(v.h.prefix.Rest(v.r), "/")
	query := slices.DeleteFunc(strings.Split(v.r.URL.RawQuery, "&"), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(name)
		return err == nil && (name == mark || name == "done")
	})
	if text := strings.Join(query, "&"); text != "" {
		address += "?" + text
	}
	return address
}

// bearer returns the bearer in the form of the sign-in.
func (v *visit) bearer() string { return strings.TrimSpace(v.form.Get("key")) }

// wrongBearer says why a bearer is none that the page can keep; "": it is one.
func wrongBearer(bearer string) string {
	switch {
	case bearer == "":
		return notAccepted
	case len(bearer) > maxBearer:
		return tooLong
	}
	return ""
}

// signIn authenticates the caller by the form and sets the cookie.
func (v *visit) signIn() error {
	bearer := v.bearer()
	by, err := v.admit(bearer)
	if svc.ErrorCode(err) == svc.CodeUnauthenticated {
		return v.refuseSignIn(notAccepted)
	} else if err != nil {
		return err
	}
	_, own := v.h.cookieNames(v.r)
	v.h.setCookie(v.w, v.r, own, v.h.sessions.encode(v.h.tenant, by.Identity(), bearer))
	address := v.h.knownAddress(v.form.Get("to"))
	if strings.Contains(address, "?") {
		address += "&"
	} else {
		address += "?"
	}
	return v.redirect(address + mark + "=1")
}

// knownAddress returns an address if it leads to a page, else "". It never leads to another site.
func (h *Handler) knownAddress(address string) string {
	address, _, _ = strings.Cut(address, "#")
	path, _, _ := strings.Cut(address, "?")
	if at, _, _ := h.paths.Match(http.MethodGet, "/"+path); at < 0 || path == "" {
		return ""
	}
	return address
}

// signOut ends the sessions of the request, for every copy of their cookies. They are several where
// other ports of the host serve the same pages.
func (v *visit) signOut() error {
	for _, cookie := range v.h.cookies(v.r) {
		if in, ok := v.h.sessions.decode(v.h.tenant, cookie.Value); ok {
			v.h.sessions.end(in)
			v.h.setCookie(v.w, v.r, cookie.Name, "")
		}
	}
	return v.redirect("")
}
