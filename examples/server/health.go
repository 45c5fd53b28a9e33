package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"net"
	"net/http"
	"time"
)

var healthCommand = subcommand{
	name: "health",
	about: "ask the server that runs on this machine with the same configuration; exit with 0 if it" +
		" answers and its database does, else with 1",
	setup: func(flags *flag.FlagSet, c *call) job {
		c.addrFlag(flags)
		return c.askHealth
	},
}

// askHealth asks the server for its health. It sends no secret.
func (c *call) askHealth(ctx context.Context) error {
	base, transport, err := c.own()
	if err != nil {
		return err
	}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/healthz", nil)
	if err != nil {
		return err
	}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return fmt.Errorf("the server at %s does not answer: %w", c.Addr, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusNoContent {
		return fmt.Errorf("the server at %s answers %s", c.Addr, answer.Status)
	}
	return nil
}

// own returns the address of the server of this configuration, and how to reach it without a proxy.
func (c *call) own() (base string, transport *http.Transport, err error) {
	if path, is := socketOf(c.Addr); is {
		return "http://localhost", dialing(path), nil
	}
	host, port, _ := net.SplitHostPort(c.Addr) // it is checked
	if port == "0" || port == "" {
		return "", nil, usageError("health needs the port on which the server listens: set -addr")
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return c.TLS.scheme() + "://" + net.JoinHostPort(host, port), &http.Transport{
		// The certificate has the server's public name, and only the status is of interest.
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true},
	}, nil
}
