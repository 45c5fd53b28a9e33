package main

import (
	"crypto/rand"
	_ "embed"
	"html/template"
	"net/http"
)

var (
	//go:embed page.html
	pageText string
	page     = template.Must(template.New("page").Parse(pageText))
)

// queue is a queue on the page.
type queue struct {
	Name      string
	Tickets   []ticket
	MayAnswer bool
}

func show(w http.ResponseWriter, user string, queues []queue) {
	w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
	_ = page.Execute(w, map[string]any{"User": user, "Queues": queues}) // fails: the client is gone
}

// Sessions of the host, in memory. A real host has a form to sign in, a Secure cookie and sessions
// that end: examples/host.

const cookieName = "helpdesk"

// newSession returns a token that signs a user in.
func (d *desk) newSession(user string) string {
	token := rand.Text()
	d.sessions.Store(token, user)
	return token
}

// sessionUser returns the user of the session in a request's cookie.
func (d *desk) sessionUser(r *http.Request) (user string, ok bool) {
	cookie, err := r.Cookie(cookieName)
	if err != nil {
		return "", false
	}
	found, _ := d.sessions.Load(cookie.Value)
	user, ok = found.(string)
	return user, ok
}

// signIn puts the session of a link into a cookie.
func (d *desk) signIn(w http.ResponseWriter, r *http.Request) {
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: r.PathValue("session"), Path: "/",
		HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
}
