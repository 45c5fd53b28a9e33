package main

import (
	"crypto/subtle"
	_ "embed"
	"html/template"
	"net/http"
)

var (
	//go:embed page.html
	pageText string
	page     = template.Must(template.New("page").Parse(pageText))
	//go:embed me.js
	scriptText []byte
)

// view is what the page shows.
type view struct {
	User    string // "": nobody is signed in, so the page shows the form
	Refused bool   // the name or the password was wrong
}

// show answers with the page. Only this origin may serve its scripts, and no page may frame it.
func show(w http.ResponseWriter, status int, v view) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = page.Execute(w, v) // an error means that the client is gone
}

// home shows the user, or the form.
func (h *host) home(w http.ResponseWriter, r *http.Request) {
	who, _ := h.signedIn(r)
	show(w, http.StatusOK, view{User: who.ID})
}

// signIn begins a session. A host with passwords that people choose also limits the tries.
func (h *host) signIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 4<<10)
	user, password := r.PostFormValue("user"), r.PostFormValue("password")
	equal := subtle.ConstantTimeCompare([]byte(password), []byte(h.password)) == 1
	if user != administrator || !equal {
		show(w, http.StatusForbidden, view{Refused: true})
		return
	}
	token, err := h.begin(r.Context(), user)
	if err != nil {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	h.setCookie(w, r, token)
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// signOut ends the session. The next request with its cookie is refused.
func (h *host) signOut(w http.ResponseWriter, r *http.Request) {
	if err := h.end(r); err != nil {
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	}
	h.setCookie(w, r, "")
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func script(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	_, _ = w.Write(scriptText)
}
