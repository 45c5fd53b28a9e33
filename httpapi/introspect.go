package httpapi

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// notActive is the whole answer about a token that is not accepted. It does not end in a line
// break: clients may compare it byte by byte.
const notActive = `{"active":false}`

// The headers of answers for gateways that read no JSON. Ids in them are percent-encoded as in a
// path.
const (
	activeHeader = "X-Svc-Active" // true or false; absent: the gateway itself was refused
	subHeader    = "X-Svc-Sub"
	kindHeader   = "X-Svc-Kind"
	scopeHeader  = "X-Svc-Scope"
)

// introspect says whether a token is an accepted key (RFC 7662).
func (h *Handler) introspect(w http.ResponseWriter, r *request) error {
	gateway, err := r.query.gateway()
	if err != nil {
		return err
	}
	token, err := h.token(w, r)
	if err != nil {
		return err
	}
	key, err := h.service.Keys.Introspect(r.Context(), r.by, token)
	if err != nil {
		return err
	}
	if gateway {
		setGatewayHeaders(w.Header(), key)
	}
	switch {
	case key.Active:
		return sendJSON(w, http.StatusOK, wireIntrospection(key))
	case gateway:
		return challenge(true)
	}
	return sendInactive(w)
}

// gateway reports whether the caller reads the status and the headers instead of the body.
func (q query) gateway() (bool, error) {
	switch q.text("inactive") {
	case strconv.Itoa(http.StatusUnauthorized):
		return true, nil
	case "":
		return false, nil
	}
	return false, svc.Invalid("inactive", `must be "401", or absent`)
}

// sendInactive sends the same bytes and the same headers for all tokens that are not accepted.
func sendInactive(w http.ResponseWriter) error {
	w.(*answer).dropRequestID()
	start(w, http.StatusOK)
	_, _ = w.Write([]byte(notActive))
	return nil
}

func setGatewayHeaders(header http.Header, key svc.Introspection) {
	header.Set(activeHeader, strconv.FormatBool(key.Active))
	if !key.Active {
		return
	}
	header.Set(subHeader, url.PathEscape(key.Holder.ID))
	header.Set(kindHeader, string(key.Holder.Kind))
	if scope := wire.Scope(key.ScopingPolicyID); scope != "" {
		header.Set(scopeHeader, scope)
	}
}

func wireIntrospection(key svc.Introspection) wire.Introspection {
	out := wire.Introspection{
		Active: &key.Active, Sub: key.Holder.ID, Kind: string(key.Holder.Kind),
		Scope: wire.Scope(key.ScopingPolicyID),
	}
	if !key.ExpiresAt.IsZero() {
		out.Exp = new(key.ExpiresAt.Unix())
	}
	return out
}

var formBody = bodyType{
	func(mediaType string) bool { return mediaType == "application/x-www-form-urlencoded" },
	"the body must be a form, unencoded, and say so: " +
		"Content-Type: application/x-www-form-urlencoded",
}

// token returns the token in the form of a request, and authenticates the bearer a second time.
func (h *Handler) token(w http.ResponseWriter, r *request) (string, error) {
	body, err := h.body(w, r, formBody)
	if err != nil {
		return "", err
	}
	if err := h.reauthenticate(r); err != nil {
		return "", err
	}
	form, err := h.parseForm(body)
	if err != nil {
		return "", err
	}
	token := form.Get("token")
	if token == "" { // a parameter without a value is omitted (RFC 6749, section 3.2)
		return "", svc.Invalid("token", "is required")
	}
	return token, nil
}

// mostParameters is the most parameters of a form.
const mostParameters = 100

// parseForm reads a form whose parameters are each there once. The errors repeat no value: it may
// be a token.
func (h *Handler) parseForm(body []byte) (url.Values, error) {
	if bytes.Count(body, []byte("&")) >= mostParameters {
		problem := fmt.Sprintf("the body has more than %d parameters", mostParameters)
		return nil, svc.Invalid("", problem)
	}
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, svc.Invalid("", "the body has a semicolon or a malformed percent escape")
	}
	for _, name := range slices.Sorted(maps.Keys(form)) {
		switch {
		case len(form[name]) == 1:
		case name == "" || strings.HasPrefix(name, "/"):
			return nil, svc.Invalid("", fmt.Sprintf("the body has %q more than once", h.clip(name)))
		default:
			return nil, svc.Invalid(name, "must be given once")
		}
	}
	return form, nil
}
