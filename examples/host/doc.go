// Package host shows in examples how a host connects svc to its sessions, its mux and its files.
package host
