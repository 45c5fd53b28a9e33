//go:build planted

package storetest

import (
	"context"
	"errors"
	"maps"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/longtest"
	"github.com/extsvc/svc/store/memstore"
)

// TestMain checks more stores at once than there are processors, because rules wait.
// It collects garbage late.
func TestMain(m *testing.M) {
	debug.SetGCPercent(400)
	longtest.AtOnce(max(8, runtime.NumCPU()))
	m.Run()
}

// TestEveryRuleCanFail runs the rules on broken stores: those made by hand, and those that are
// generated. Each store must break a rule, and each rule must catch a store.
func TestEveryRuleCanFail(t *testing.T) {
	longtest.Test(t, "that each rule can fail")
	if broken := check(rules(), func() svc.Store { return memstore.New() }); len(broken) > 0 {
		t.Fatalf("a good store breaks %v", broken)
	}
	var c catches
	byHand, made := faults(), generated()
	t.Run("by hand", func(t *testing.T) {
		for name, fault := range byHand {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				to := quickRules()
				if longFaults[name] != nil || longAuditFaults[name] != nil || largePageFaults[name] != nil {
					to = rules()
				}
				var broken map[string]error
				for try := 0; len(broken) == 0 && try < 3; try++ { // rules take some things in no order
					broken = check(to, func() svc.Store { return fault(memstore.New()) })
				}
				if len(broken) == 0 {
					t.Error("breaks no rule")
				}
				c.add("", slices.Collect(maps.Keys(broken))...)
			})
		}
	})
	open, missed := openFaults(t), atomic.Int64{}
	t.Run("generated", func(t *testing.T) {
		for name, fault := range made {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rule := c.first(name, fault)
				if rule == "" && fault.changes() && !open[name] {
					t.Log("breaks no rule")
					missed.Add(1)
				}
				if rule != "" && open[name] {
					t.Logf("testdata/open.txt can do without this line: it breaks %q", rule)
				}
			})
		}
	})
	// A busy machine may hide the few that only a race shows.
	if most := int64(len(made) / 100); missed.Load() > most {
		t.Errorf("%d generated faults break no rule and are not in testdata/open.txt, want at most %d", missed.Load(), most)
	}
	if c.ran < len(byHand)+len(made) {
		return // only some faults were selected
	}
	if c.broke < 450 {
		t.Errorf("%d broken stores break a rule, want 450", c.broke)
	}
	for _, rule := range rules() {
		if c.caught[rule.says] == 0 && !breaks(rule) {
			t.Errorf("no broken store breaks this rule: %s", rule.says)
		}
	}
}

// openFaults are the names of generated faults that may break no rule: the contract leaves open what
// they change, or no rule shows it yet.
func openFaults(t *testing.T) map[string]bool {
	text, err := os.ReadFile("testdata/open.txt")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for name := range strings.Lines(string(text)) {
		all[strings.TrimSpace(name)] = true
	}
	return all
}

// catches are the rules that have caught a store.
type catches struct {
	mu         sync.Mutex
	caught     map[string]int
	of         map[string]map[string]bool // by method
	ran, broke int
}

// add enters the rules that a store with a fault of a method has broken.
func (c *catches) add(method string, rules ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.caught == nil {
		c.caught, c.of = map[string]int{}, map[string]map[string]bool{}
	}
	if c.of[method] == nil {
		c.of[method] = map[string]bool{}
	}
	c.ran++
	c.broke += min(1, len(rules))
	for _, rule := range rules {
		c.caught[rule]++
		c.of[method][rule] = true
	}
}

// first returns the first rule that a store breaks; "": none. It begins with rules that have caught
// no store, or one with a fault of the same method. It ends after these when the fault has changed
// nothing in them.
func (c *catches) first(name string, p planted) string {
	method, _, _ := strings.Cut(name, " ")
	c.mu.Lock()
	rules := quickRules()
	place, known := map[string]int{}, len(c.of[method])
	for _, rule := range rules {
		switch {
		case c.of[method][rule.says]:
			place[rule.says] = 1
		case c.caught[rule.says] > 0:
			place[rule.says] = 2
		}
	}
	c.mu.Unlock()
	slices.SortStableFunc(rules, func(a, b rule) int { return place[a.says] - place[b.says] })
	fault := broken(p.fault)
	for i, rule := range rules {
		if place[rule.says] == 2 && known >= 5 && !p.changes() {
			break
		}
		if len(check(rules[i:i+1], func() svc.Store { return fault(memstore.New()) })) > 0 {
			c.add(method, rule.says)
			return rule.says
		}
	}
	c.add(method)
	return ""
}

// breaks reports whether a broken store breaks a rule when nothing else runs: some rules catch a
// store that does not wait within milliseconds, which a busy machine may not give it. Others catch
// only generated faults that another rule has caught first.
func breaks(one rule) bool {
	all := faults()
	for name, made := range generated() {
		all[name] = broken(made.fault)
	}
	for _, fault := range all {
		if len(check([]rule{one}, func() svc.Store { return fault(memstore.New()) })) > 0 {
			return true
		}
	}
	return false
}

// bare is a store without the optional roles.
type bare struct{ svc.Store }

func (b bare) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return b.Store.Atomically(ctx, func(ctx context.Context, tx svc.Store) error { return fn(ctx, bare{tx}) })
}

// A store without the optional roles breaks no rule, and the rules of these roles are skipped.
func TestStoreWithoutOptionalRoles(t *testing.T) {
	Run(t, func(*testing.T) svc.Store { return bare{memstore.New()} })
	var lacks []string
	for _, rule := range quickRules() {
		if missing, is := errors.AsType[skipped](rule.broken(bare{memstore.New()})); is {
			lacks = append(lacks, missing.Error())
		}
	}
	if want := len(sourceFileRules) + len(outboxRules) + len(answerRules) + len(auditRules); len(lacks) != want {
		t.Errorf("%d rules are skipped, want %d", len(lacks), want)
	}
	if slices.Sort(lacks); !slices.Equal(slices.Compact(lacks), []string{
		"the store is no svc.AnswerStore", "the store is no svc.AuditStore",
		"the store is no svc.OutboxStore", "the store is no svc.SourceFileStore",
	}) {
		t.Errorf("rules are skipped because of %q", lacks)
	}
}

// store is a good store. A fault replaces some of its methods.
type store struct {
	svc.FullStore

	createSource     func(context.Context, svc.Source) error
	source           func(context.Context, svc.SourceKey) (svc.Source, error)
	sources          func(context.Context, svc.SourcePage) ([]svc.Source, error)
	changeSource     func(context.Context, svc.SourceKey, func(*svc.Source) (bool, error)) error
	deleteSource     func(context.Context, svc.SourceKey) error
	keepSourceFile   func(context.Context, svc.SourceKey, svc.SourceFile) error
	sourceFile       func(context.Context, svc.SourceKey, string) (svc.SourceFile, error)
	createTemplate   func(context.Context, svc.Template) error
	template         func(context.Context, svc.TemplateKey) (svc.Template, error)
	templates        func(context.Context, svc.TemplatePage) ([]svc.Template, error)
	changeTemplate   func(context.Context, svc.TemplateKey, func(*svc.Template) (bool, error)) error
	deleteTemplate   func(context.Context, svc.TemplateKey, func(svc.Template) error) error
	templateVersions func(context.Context, svc.TemplateKey, int64, int) ([]svc.TemplateVersion, error)
	installations    func(context.Context, svc.InstallationPage) ([]svc.Installation, error)
	rebindTemplates  func(context.Context, svc.SourceKey, string) ([]svc.TemplateKey, error)
	createAPIKey     func(context.Context, svc.APIKey) error
	changeAPIKey     func(context.Context, svc.Identity, string, func(*svc.APIKey) (bool, error)) error
	revokeAPIKeys    func(context.Context, svc.Identity, time.Time, int) ([]string, error)
	lock             func(context.Context, svc.Locks) error
	useAPIKeys       func(context.Context, []svc.LastUse) error
	apiKeys          func(context.Context, svc.APIKeyPage) ([]svc.APIKey, error)
	keepValue        func(context.Context, string, []byte) ([]byte, error)
	access           func(context.Context, svc.AccessQuery) (svc.AccessSnapshot, error)
	readAccess       func(context.Context, svc.AccessRead, func(svc.Bundle) error) (svc.StoreChanges, error)
	changeAccess     func(context.Context, svc.AccessNames, func(svc.Bundle) (svc.AccessWrite, error)) error
	changes          func(context.Context, int64) (svc.StoreChanges, error)
	awaitChange      func(context.Context, int64) error
	addEvents        func(context.Context, []svc.Event) error
	claimEvents      func(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error)
	deleteEvents     func(context.Context, []uuid.UUID) error
	answer           func(context.Context, []byte, time.Time) (svc.StoredAnswer, error)
	keepAnswer       func(context.Context, svc.StoredAnswer, time.Time) error
	countAnswers     func(context.Context, []byte, time.Time, int) (int, error)
	deleteAnswers    func(context.Context, []byte) error
	queueAudit       func(context.Context, []svc.Event, func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) error
	chainAudit       func(context.Context, func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) (bool, error)
	eraseAudit       func(context.Context, []svc.AuditRecord) error
	auditRecords     func(context.Context, svc.AuditQuery) ([]svc.AuditRecord, error)
	atomically       func(context.Context, func(context.Context, svc.Store) error) error
}

// broken returns a store with methods that fault has replaced.
func broken(fault func(s *store)) func(svc.Store) svc.Store {
	return func(whole svc.Store) svc.Store {
		good := whole.(svc.FullStore)
		s := &store{
			FullStore:    good,
			createSource: good.CreateSource, source: good.Source, sources: good.Sources,
			changeSource: good.ChangeSource, deleteSource: good.DeleteSource,
			keepSourceFile: good.KeepSourceFile, sourceFile: good.SourceFile,
			createTemplate: good.CreateTemplate, template: good.Template, templates: good.Templates,
			changeTemplate: good.ChangeTemplate, deleteTemplate: good.DeleteTemplate, templateVersions: good.TemplateVersions,
			installations: good.Installations, rebindTemplates: good.RebindTemplates,
			createAPIKey: good.CreateAPIKey, apiKeys: good.APIKeys, keepValue: good.KeepValue,
			changeAPIKey: good.ChangeAPIKey, revokeAPIKeys: good.RevokeAPIKeys, useAPIKeys: good.UseAPIKeys,
			lock:   good.Lock,
			access: good.Access, readAccess: good.ReadAccess, changeAccess: good.ChangeAccess,
			changes: good.Changes, awaitChange: good.AwaitChange,
			addEvents: good.AddEvents, claimEvents: good.ClaimEvents, deleteEvents: good.DeleteEvents,
			queueAudit: good.QueueAudit, chainAudit: good.ChainAudit, eraseAudit: good.EraseAudit, auditRecords: good.AuditRecords,
			answer: good.Answer, keepAnswer: good.KeepAnswer,
			countAnswers: good.CountAnswers, deleteAnswers: good.DeleteAnswers, atomically: good.Atomically,
		}
		fault(s)
		return s
	}
}

func (s *store) CreateSource(ctx context.Context, source svc.Source) error {
	return s.createSource(ctx, source)
}
func (s *store) Source(ctx context.Context, key svc.SourceKey) (svc.Source, error) {
	return s.source(ctx, key)
}
func (s *store) Sources(ctx context.Context, page svc.SourcePage) ([]svc.Source, error) {
	return s.sources(ctx, page)
}
func (s *store) ChangeSource(ctx context.Context, key svc.SourceKey, change func(*svc.Source) (bool, error)) error {
	return s.changeSource(ctx, key, change)
}
func (s *store) DeleteSource(ctx context.Context, key svc.SourceKey) error {
	return s.deleteSource(ctx, key)
}
func (s *store) KeepSourceFile(ctx context.Context, key svc.SourceKey, file svc.SourceFile) error {
	return s.keepSourceFile(ctx, key, file)
}
func (s *store) SourceFile(ctx context.Context, key svc.SourceKey, path string) (svc.SourceFile, error) {
	return s.sourceFile(ctx, key, path)
}
func (s *store) CreateTemplate(ctx context.Context, t svc.Template) error {
	return s.createTemplate(ctx, t)
}
func (s *store) Template(ctx context.Context, key svc.TemplateKey) (svc.Template, error) {
	return s.template(ctx, key)
}
func (s *store) Templates(ctx context.Context, page svc.TemplatePage) ([]svc.Template, error) {
	return s.templates(ctx, page)
}
func (s *store) ChangeTemplate(ctx context.Context, key svc.TemplateKey, change func(*svc.Template) (bool, error)) error {
	return s.changeTemplate(ctx, key, change)
}
func (s *store) TemplateVersions(ctx context.Context, key svc.TemplateKey, before int64, limit int) ([]svc.TemplateVersion, error) {
	return s.templateVersions(ctx, key, before, limit)
}
func (s *store) Installations(ctx context.Context, page svc.InstallationPage) ([]svc.Installation, error) {
	return s.installations(ctx, page)
}
func (s *store) RebindTemplates(ctx context.Context, source svc.SourceKey, url string) ([]svc.TemplateKey, error) {
	return s.rebindTemplates(ctx, source, url)
}
func (s *store) DeleteTemplate(ctx context.Context, key svc.TemplateKey, check func(svc.Template) error) error {
	return s.deleteTemplate(ctx, key, check)
}
func (s *store) CreateAPIKey(ctx context.Context, key svc.APIKey) error {
	return s.createAPIKey(ctx, key)
}
func (s *store) ChangeAPIKey(ctx context.Context, holder svc.Identity, id string, change func(*svc.APIKey) (bool, error)) error {
	return s.changeAPIKey(ctx, holder, id, change)
}
func (s *store) RevokeAPIKeys(ctx context.Context, holder svc.Identity, at time.Time, limit int) ([]string, error) {
	return s.revokeAPIKeys(ctx, holder, at, limit)
}
func (s *store) Lock(ctx context.Context, locks svc.Locks) error { return s.lock(ctx, locks) }
func (s *store) UseAPIKeys(ctx context.Context, uses []svc.LastUse) error {
	return s.useAPIKeys(ctx, uses)
}
func (s *store) APIKeys(ctx context.Context, page svc.APIKeyPage) ([]svc.APIKey, error) {
	return s.apiKeys(ctx, page)
}
func (s *store) KeepValue(ctx context.Context, name string, value []byte) ([]byte, error) {
	return s.keepValue(ctx, name, value)
}
func (s *store) Access(ctx context.Context, query svc.AccessQuery) (svc.AccessSnapshot, error) {
	return s.access(ctx, query)
}
func (s *store) ReadAccess(ctx context.Context, read svc.AccessRead, yield func(svc.Bundle) error) (svc.StoreChanges, error) {
	return s.readAccess(ctx, read, yield)
}
func (s *store) ChangeAccess(ctx context.Context, named svc.AccessNames, change func(svc.Bundle) (svc.AccessWrite, error)) error {
	return s.changeAccess(ctx, named, change)
}

func (s *store) Changes(ctx context.Context, since int64) (svc.StoreChanges, error) {
	return s.changes(ctx, since)
}
func (s *store) AwaitChange(ctx context.Context, since int64) error { return s.awaitChange(ctx, since) }
func (s *store) AddEvents(ctx context.Context, events []svc.Event) error {
	return s.addEvents(ctx, events)
}
func (s *store) ClaimEvents(ctx context.Context, now, until time.Time, limit int) ([]svc.Event, error) {
	return s.claimEvents(ctx, now, until, limit)
}
func (s *store) DeleteEvents(ctx context.Context, ids []uuid.UUID) error {
	return s.deleteEvents(ctx, ids)
}
func (s *store) Answer(ctx context.Context, key []byte, now time.Time) (svc.StoredAnswer, error) {
	return s.answer(ctx, key, now)
}
func (s *store) KeepAnswer(ctx context.Context, answer svc.StoredAnswer, now time.Time) error {
	return s.keepAnswer(ctx, answer, now)
}
func (s *store) CountAnswers(ctx context.Context, caller []byte, now time.Time, most int) (int, error) {
	return s.countAnswers(ctx, caller, now, most)
}
func (s *store) DeleteAnswers(ctx context.Context, caller []byte) error {
	return s.deleteAnswers(ctx, caller)
}
func (s *store) QueueAudit(ctx context.Context, events []svc.Event, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) error {
	return s.queueAudit(ctx, events, chain)
}
func (s *store) ChainAudit(ctx context.Context, chain func(svc.AuditRecord, []svc.Event) []svc.AuditRecord) (bool, error) {
	return s.chainAudit(ctx, chain)
}
func (s *store) EraseAudit(ctx context.Context, records []svc.AuditRecord) error {
	return s.eraseAudit(ctx, records)
}
func (s *store) AuditRecords(ctx context.Context, page svc.AuditQuery) ([]svc.AuditRecord, error) {
	return s.auditRecords(ctx, page)
}
func (s *store) Atomically(ctx context.Context, fn func(context.Context, svc.Store) error) error {
	return s.atomically(ctx, fn)
}

// faults returns the faults by name.
func faults() map[string]func(svc.Store) svc.Store {
	all := map[string]func(*store){}
	for _, group := range []map[string]func(*store){
		accessFaults, largePageFaults, apiKeyFaults, auditFaults, longAuditFaults, changeFaults, longFaults, outboxFaults,
		sourceFaults, templateFaults, transactionFaults,
	} {
		maps.Copy(all, group)
	}
	built := map[string]func(svc.Store) svc.Store{}
	for name, fault := range all {
		built[name] = broken(fault)
	}
	return built
}
