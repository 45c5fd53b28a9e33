// Command release writes a version of every module that hosts import, and the program, into a
// folder: a module proxy (proxy), static binaries with their sums and a bill of materials (bin),
// and the release notes (notes). The same commit and the same Go give the same bytes.
// Run it as ./release.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"golang.org/x/mod/semver"
)

const usage = `usage: ./release VERSION OUT

Writes the committed tree as VERSION (such as v0.1.0) into the folder OUT:
  OUT/proxy   a Go module proxy of all modules that hosts import: GOPROXY=file://OUT/proxy
  OUT/bin     the program for each platform, SHA256SUMS and sbom.cdx.json
  OUT/notes   the section of CHANGELOG.md

  -rehearse   takes the files as they are, committed or not, writes OUT/proxy alone, and refuses only
              what would break programs for VERSION, or for the tag before it
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	root := flag.String("root", ".", "")
	rehearsal := flag.Bool("rehearse", false, "")
	flag.Parse()
	if flag.NArg() != 2 {
		flag.Usage()
		os.Exit(2)
	}
	err := run(ctx, *root, flag.Arg(0), flag.Arg(1), *rehearsal)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// release is one version on its way into a folder. Everything is made in scratch, and moved to out
// when it is complete.
type release struct {
	root    string // of the clone
	version string
	out     string

	rehearsal bool // of the version that comes after this one

	scratch string
	tree    string // the files of the version, in scratch
	modules []goModule
}

func run(ctx context.Context, root, version, out string, rehearsal bool) (err error) {
	if !semver.IsValid(version) || semver.Canonical(version) != version || semver.Major(version) > "v1" {
		return fmt.Errorf("%q is no version: name one such as v0.1.0, below v2", version)
	}
	r := release{root: root, version: version, rehearsal: rehearsal}
	if r.out, err = filepath.Abs(out); err != nil {
		return err
	}
	if r.scratch, err = os.MkdirTemp("", "release-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(r.scratch)) }()
	r.tree = filepath.Join(r.scratch, "tree")
	if rehearsal {
		return r.rehearse(ctx)
	}
	return r.make(ctx)
}

// rehearse writes the proxy only, unless the next version would be refused.
func (r *release) rehearse(ctx context.Context) error {
	if err := r.copyWorktree(ctx); err != nil {
		return err
	}
	if err := r.writeProxy(ctx); err != nil {
		return err
	}
	if err := r.compare(ctx); err != nil {
		return err
	}
	return r.publish("proxy")
}

func (r *release) make(ctx context.Context) error {
	notes, err := r.refuse(ctx)
	if err != nil {
		return err
	}
	if err := checkout(ctx, r.root, "HEAD", r.tree); err != nil {
		return err
	}
	if err := r.writeProxy(ctx); err != nil {
		return err
	}
	if err := r.compare(ctx); err != nil {
		return err
	}
	if err := r.build(ctx); err != nil {
		return err
	}
	if err := r.writeNotes(notes); err != nil {
		return err
	}
	return r.publish("bin", "notes", "proxy")
}
