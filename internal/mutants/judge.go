package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// switches is the source that the overlay adds to a package with mutants.
const switches = `package %s

import (
	"os"
	"strconv"
)

var mutantOn, _ = strconv.Atoi(os.Getenv("SVC_MUTANT"))

func mutantPick[T any](on bool, source, mutant T) T {
	if on {
		return mutant
	}
	return source
}

var _ = mutantPick[int]
`

// judge compiles the mutants of a package, runs the tests against each, and prints what happened.
// It returns how many survived of how many; mutants that do not compile are no mutants.
func judge(
	ctx context.Context, p *pkg, sites []*site, scratch string,
) (lived, judged int, err error) {
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return 0, 0, err
	}
	overlay, sites, err := compiling(ctx, p, sites, scratch)
	if err != nil {
		return 0, 0, err
	}
	living := sites
	for i, path := range p.judges {
		if len(living) == 0 {
			break
		}
		tests := &binary{file: filepath.Join(scratch, strconv.Itoa(i)+".test")}
		if err := tests.build(ctx, path, overlay); err != nil {
			return 0, 0, err
		}
		for _, form := range []string{"CI=", "CI=true"} {
			if living, err = tests.killAll(ctx, living, form); err != nil {
				return 0, 0, fmt.Errorf("tests of %s: %w", path, err)
			}
		}
	}
	for _, s := range living {
		fmt.Printf("SURVIVED %s:%d\n%s\n", filepath.Join(p.folder, s.file), s.line, s.name())
	}
	return len(living), len(sites), nil
}

// compiling writes an overlay with the sites that the compiler accepts, and returns its file.
func compiling(
	ctx context.Context, p *pkg, sites []*site, scratch string,
) (overlay string, compiled []*site, err error) {
	for {
		if overlay, err = write(p, sites, scratch); err != nil {
			return "", nil, err
		}
		build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-gcflags=-e", p.path)
		said, failed := build.CombinedOutput()
		if failed == nil {
			return overlay, sites, nil
		}
		before := len(sites)
		for _, at := range wrong.FindAllSubmatch(said, -1) {
			sites = slices.DeleteFunc(sites, func(s *site) bool {
				return s.file == string(at[1]) && strconv.Itoa(s.line) == string(at[2])
			})
		}
		if len(sites) == before {
			return "", nil, fmt.Errorf("%w: %s", failed, said)
		}
	}
}

// wrong is where the compiler found an error.
var wrong = regexp.MustCompile(`(?m)([^/\s]+\.go):([0-9]+):[0-9]+: `)

// write writes the changed sources and the overlay that names them.
func write(p *pkg, sites []*site, scratch string) (string, error) {
	replace := map[string]string{}
	put := func(name string, text []byte) error {
		to := filepath.Join(scratch, name)
		replace[filepath.Join(p.dir, name)] = to
		return os.WriteFile(to, text, 0o600)
	}
	from := slices.Clone(sites)
	slices.SortFunc(from, func(a, b *site) int { return cmp.Compare(b.from, a.from) })
	changed := map[string][]byte{}
	for _, s := range from {
		src := changed[s.file]
		if src == nil {
			var err error
			if src, err = os.ReadFile(filepath.Join(p.dir, s.file)); err != nil {
				return "", err
			}
		}
		changed[s.file] = slices.Replace(src, s.from, s.to, []byte(s.replacement())...)
	}
	for name, text := range changed {
		if err := put(name, text); err != nil {
			return "", err
		}
	}
	name, err := exec.Command("go", "list", "-f", "{{.Name}}", p.path).Output()
	if err != nil {
		return "", err
	}
	if err := put("mutant_on.go", fmt.Appendf(nil, switches, bytes.TrimSpace(name))); err != nil {
		return "", err
	}
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(scratch, "overlay.json")
	return overlay, os.WriteFile(overlay, text, 0o600)
}

// binary is the compiled tests of a package.
type binary struct {
	file, dir string
	form      string // "CI=" or "CI=true"
	bound     time.Duration
}

// build compiles the tests. A package without tests has no file then.
func (b *binary) build(ctx context.Context, path, overlay string) error {
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		return err
	}
	b.dir = string(bytes.TrimSpace(dir))
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", b.file, path)
	if said, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, said)
	}
	return nil
}

// killAll runs the tests in their short or long form against each site's mutant, and returns those
// that survive.
func (b *binary) killAll(
	ctx context.Context, sites []*site, form string,
) (living []*site, err error) {
	if _, err := os.Stat(b.file); os.IsNotExist(err) || len(sites) == 0 {
		return sites, nil
	}
	b.form, b.bound = form, 20*time.Minute
	start := time.Now()
	if by, err := b.test(ctx, 0); err != nil || by != "" {
		return nil, errors.Join(err, fmt.Errorf("fail without a mutant: %s", by))
	}
	b.bound = 4*time.Since(start) + 30*time.Second
	for _, s := range sites {
		by, err := b.test(ctx, s.number)
		if err != nil {
			return nil, err
		}
		if by == "" {
			living = append(living, s)
			continue
		}
		at := filepath.Join(s.of.folder, s.file)
		by, _, _ = strings.Cut(by, "\n")
		fmt.Printf("killed   %s:%d: %s (%s)\n", at, s.line, s.what, by)
	}
	return living, nil
}

// failure is the first word of go test about what failed, with the reason in the next line.
var failure = regexp.MustCompile(`(?m)^(?:--- FAIL: .*(?:\n[ \t].*)?|panic: .*|fatal error: .*)`)

// limited runs a command with at most 4 GiB of memory: a loop that a mutant makes endless must not take
// that of the machine.
const limited = `ulimit -d 4194304; exec "$0" "$@"`

// test runs the tests with one mutant on, or with none. It returns what failed; "" says that all
// passed.
func (b *binary) test(ctx context.Context, number int) (by string, err error) {
	run := exec.CommandContext(
		ctx, "sh", "-c", limited, b.file, "-test.failfast", "-test.timeout", b.bound.String())
	run.Dir = b.dir
	run.Env = append(os.Environ(), b.form, "SVC_MUTANT="+strconv.Itoa(number))
	run.WaitDelay = time.Minute
	said, failed := run.CombinedOutput()
	switch {
	case failed == nil:
		return "", nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	}
	if first := failure.Find(said); first != nil {
		return string(first), nil
	}
	return failed.Error(), nil
}
