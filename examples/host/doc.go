// Package host shows, in its examples, how a host application connects svc to what it has already: its sessions, its mux,
// its own files.
package host
