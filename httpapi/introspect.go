package httpapi

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/body"
	"github.com/extsvc/svc/internal/wire"
)

// notActive is the whole answer about a token that is not accepted. It does not end in a line
// break: clients may compare it byte by byte.
const notActive = `{"active":false}`

// introspectPath is the path of introspection after the prefix.
const introspectPath = "/introspect"

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
	// A gateway reads the status and the headers, not the body.
	gateway, err := r.query.is("inactive", "401")
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

// token returns the token in the form of a request, and authenticates the bearer a second time.
func (h *Handler) token(w http.ResponseWriter, r *request) (string, error) {
	form, wrong := body.Form(w, r.Request, h.options.MaxBody)
	if err := cmp.Or(h.reauthenticate(r), wrong); err != nil {
		return "", err
	}
	token := form.Get("token")
	if token == "" { // a parameter without a value is omitted (RFC 6749, section 3.2)
		return "", svc.Invalid("token", "is required")
	}
	return token, nil
}
