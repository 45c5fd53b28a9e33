// Mutants measures how strong the tests are. It draws random one-line changes of the workspace's
// sources by a seed. It runs the tests of the changed package against each, in their short form and
// then with CI=true. A mutant that no test notices survives. The program exits with 1 when more
// than one in twenty survive.
//
//	go run ./internal/mutants                  # 40 mutants, by this week's seed
//	go run ./internal/mutants -seed 7 -n 200 -only internal/policy
//
// All mutants of a package are compiled once, each behind a switch that the environment turns on.
// Sources on disk stay as they are: the compiler reads an overlay. Tests that build programs with
// the go command build them without a mutant.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// leastKilled is the share of mutants, in percent, that tests have to kill.
const leastKilled = 95

func main() {
	year, week := time.Now().UTC().ISOWeek()
	seed := flag.Uint64("seed", uint64(year*100+week), "the draw; the default is the ISO week")
	n := flag.Int("n", 40, "how many mutants to draw")
	only := flag.String("only", "", "the folder of one package; empty draws from all")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *seed, *n, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run draws n mutants and has them judged. An error says that something cannot run, or that too
// many mutants survived.
func run(ctx context.Context, seed uint64, n int, only string) error {
	packages, err := list(ctx, only)
	if err != nil {
		return err
	}
	drawn, err := draw(packages, seed, n)
	if err != nil {
		return err
	}
	fmt.Printf("seed %d: %d mutants\n", seed, len(drawn))
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)

	killed, survived, err := judgeAll(ctx, packages, drawn, scratch)
	if err != nil {
		return err
	}
	fmt.Printf("%d killed, %d survived\n", killed, survived)
	if killed*100 < leastKilled*(killed+survived) {
		return fmt.Errorf("less than %d %% killed: write the tests, or list equivalents in %s",
			leastKilled, equivalents)
	}
	return nil
}

// judgeAll judges two packages at the same time, because mutants that wait for ever cost time and
// no work.
func judgeAll(
	ctx context.Context, packages []*pkg, drawn []*site, scratch string,
) (killed, survived int, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	atOnce := make(chan struct{}, 2)
	for _, p := range packages {
		own := slices.DeleteFunc(slices.Clone(drawn), func(s *site) bool { return s.of != p })
		if len(own) == 0 {
			continue
		}
		all.Go(func() {
			atOnce <- struct{}{}
			defer func() { <-atOnce }()
			lived, judged, failed := judge(ctx, p, own, filepath.Join(scratch, path.Base(p.path)))
			mu.Lock()
			defer mu.Unlock()
			survived += lived
			killed += judged - lived
			if failed != nil {
				err = errors.Join(err, fmt.Errorf("%s: %w", p.path, failed))
			}
		})
	}
	all.Wait()
	return killed, survived, err
}

// pkg is a package of the workspace.
type pkg struct {
	folder string // from the workspace's root, with slashes
	path   string // the import path
	dir    string
	files  []string
	judges []string // import paths of the packages whose tests count
}

// judges names the packages whose tests judge a package together with its own: they have the rules
// that it is a part of. Paths are folders.
var judges = map[string][]string{
	".":                    {"store/memstore"},
	"internal/answers":     {"httpapi"},
	"internal/background":  {".", "internal/sequencer"},
	"internal/batching":    {"."},
	"internal/body":        {"httpapi"},
	"internal/readcache":   {"."},
	"internal/aead":        {"."},
	"internal/changefeed":  {"."},
	"internal/errtree":     {"."},
	"internal/inbound":     {"httpapi"},
	"internal/keyring":     {"."},
	"internal/lists":       {"."},
	"internal/routing":     {"httpapi"},
	"internal/openapi":     {"httpapi"},
	"internal/outbox":      {"."},
	"internal/policy":      {"internal/policy/policytest", "."},
	"internal/recent":      {"."},
	"internal/semaphore":   {"."},
	"internal/accessindex": {"."},
	"internal/listcache":   {"."},
	"internal/token":       {"internal/keyring"},
	"internal/wire":        {"httpapi", "client"},
	"store/sqlite":         {"examples/server"}, // as a user with fewer rights
	"store/sqlstore":       {"store/sqlite", "e2e/dbcopy", "store/postgres"},
}

// withoutBehaviour starts the folders from which no mutant is drawn: programs, and what tests use.
var withoutBehaviour = []string{
	"e2e", "examples", "internal/mutants", "internal/pauses", "internal/policy/policytest",
	"internal/calltest", "internal/expect", "internal/heaptest", "internal/intercept", "internal/longtest", "internal/porttest", "internal/sqltest",
	"internal/testscript", "store/postgres/pgtest", "store/storetest",
}

// list returns the packages of the workspace in which mutants are drawn, sorted by folder.
func list(ctx context.Context, only string) ([]*pkg, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	format := `{{.ImportPath}}|{{.Dir}}|{{join .GoFiles " "}}`
	said, err := exec.CommandContext(ctx, "go", "list", "-f", format, "work").Output()
	if err != nil {
		return nil, fmt.Errorf("go list work: %w", err)
	}
	byFolder := map[string]*pkg{}
	for line := range strings.Lines(string(said)) {
		field := strings.Split(strings.TrimSpace(line), "|")
		folder, err := filepath.Rel(root, field[1])
		if err != nil {
			return nil, err
		}
		p := &pkg{folder: filepath.ToSlash(folder), path: field[0], dir: field[1]}
		p.files = strings.Fields(field[2])
		byFolder[p.folder] = p
	}
	var all []*pkg
	for folder, p := range byFolder {
		p.judges = []string{p.path}
		for _, other := range judges[folder] {
			if judge, there := byFolder[other]; there { // another workspace has its own
				p.judges = append(p.judges, judge.path)
			}
		}
		if (only == "" || only == folder) && !slices.ContainsFunc(withoutBehaviour, p.within) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pkg) int { return cmp.Compare(a.folder, b.folder) })
	return all, nil
}

func (p *pkg) within(folder string) bool {
	return p.folder == folder || strings.HasPrefix(p.folder, folder+"/")
}

// draw returns n sites of the packages, or all there are. No two overlap, and none is listed as
// equivalent.
func draw(packages []*pkg, seed uint64, n int) ([]*site, error) {
	var all []*site
	for _, p := range packages {
		sites, err := p.sites()
		if err != nil {
			return nil, err
		}
		all = append(all, sites...)
	}
	listed, err := listed(equivalents)
	if err != nil {
		return nil, err
	}
	order := rand.New(rand.NewPCG(seed, 0))
	order.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var drawn []*site
	for _, s := range all {
		if len(drawn) == n {
			break
		}
		if !listed[s.name()] && !slices.ContainsFunc(drawn, s.overlaps) {
			drawn = append(drawn, s)
			s.number = len(drawn)
		}
	}
	return drawn, nil
}
