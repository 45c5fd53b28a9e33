package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
)

const (
	unixScheme = "unix:"
	// mostSocketPath is the most bytes of the path of a socket on every system.
	mostSocketPath = 103
	socketMode     = 0o660
)

// socketOf returns the path of the Unix socket that an address names.
func socketOf(address string) (path string, is bool) {
	return strings.CutPrefix(address, unixScheme)
}

// isAddress reports whether the server can listen on an address.
func isAddress(address string) bool {
	if path, is := socketOf(address); is {
		return path != "" && len(path) <= mostSocketPath
	}
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = net.LookupPort("tcp", port)
	}
	return err == nil
}

// listen opens the address of the server. The listener removes its socket when it is closed.
func listen(ctx context.Context, address string) (net.Listener, error) {
	path, is := socketOf(address)
	if !is {
		return new(net.ListenConfig).Listen(ctx, "tcp", address)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// removeStale removes the socket of a process that has ended. It refuses one on which a process
// listens, and any other file.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s exists and is not a socket: name another -addr", path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		_ = conn.Close()
		return fmt.Errorf("another process listens on %s: stop it, or name another -addr", path)
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	}
	return err
}

// dialing returns a transport whose connections all lead to a Unix socket.
func dialing(path string) *http.Transport {
	return &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}
}
