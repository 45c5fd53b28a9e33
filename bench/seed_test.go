package bench_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/store/memstore"
)

// size is the number of rows.
type size struct {
	name            string
	keys, templates int
	known           int // keys whose whole text is known
	large           bool
}

var (
	small = size{name: "small", keys: 10_000, templates: 1_000, known: 1_000}
	large = size{name: "large", keys: 1_000_000, templates: 100_000, known: 10_000, large: true}

	// For verification alone: every key is in use, or one in a thousand.
	used   = size{name: "used", keys: 10_000, templates: 100, known: 10_000}
	stored = size{name: "stored", keys: 1_000_000, templates: 100, known: 1_000}
)

// content is the known content of a database.
type content struct {
	size
	issued []svc.IssuedKey
	next   int // a counter, so that each call looks up another row
}

const (
	keysPerUser  = 10
	labelled     = 20 // templates of one category, and of one tag
	groups       = 5  // of the principal
	manifestSize = 4 << 10
)

// manifest is an object of 4 KB.
var manifest = makeManifest(manifestSize, 2)

// makeManifest returns an object of about that size that compresses about as well as English.
func makeManifest(size int, seed uint64) string {
	words := strings.Fields("the agent remembers what was said and asks again when a plan of last week is due or somebody new has joined")
	draw := rand.New(rand.NewPCG(1, seed))
	var b strings.Builder
	b.WriteString(`{"version":"1","notes":[`)
	for b.Len() < size-64 {
		fmt.Fprintf(&b, `{"id":%d,"text":"%s %s %s"},`, draw.IntN(1e9), words[draw.IntN(len(words))], words[draw.IntN(len(words))], words[draw.IntN(len(words))])
	}
	return strings.TrimSuffix(b.String(), ",") + `]}`
}

func templateID(i int) string { return fmt.Sprintf("t-%06d", i) }

func userID(i int) string { return fmt.Sprintf("u-%06d", i) }

func (s *site) anyTemplate() string {
	s.next++
	return templateID(1 + s.next*7919%s.templates)
}

func (s *site) anyKey() svc.IssuedKey {
	s.next++
	return s.issued[s.next*7919%len(s.issued)]
}

// anyLabel returns the number of a category, and of a tag, that 20 templates have.
func (s *site) anyLabel() int {
	s.next++
	return 1 + s.next*31%(s.templates/labelled-1)
}

// seed fills an empty database.
func (s *site) seed() error {
	ctx := context.Background()
	if err := s.seedKeys(ctx); err != nil {
		return fmt.Errorf("seed keys: %w", err)
	}
	if err := s.seedTemplates(ctx); err != nil {
		return fmt.Errorf("seed templates: %w", err)
	}
	if err := s.service.Access.Apply(ctx, svc.Host, principalBundle()); err != nil {
		return fmt.Errorf("seed access: %w", err)
	}
	_, err := s.bare.write.Exec(s.settle)
	return err
}

// fill runs a statement in which {n} stands for the numbers up to n, {random} and {hash} for the
// engine's own expressions.
func (s *site) fill(ctx context.Context, n int, statement string, args ...any) error {
	own := strings.NewReplacer("{n}", fmt.Sprintf(s.numbers, n), "{random}", s.random, "{hash}", s.hash)
	_, err := s.bare.write.ExecContext(ctx, own.Replace(statement), args...)
	return err
}

func (s *site) seedKeys(ctx context.Context) error {
	err := s.fill(ctx, s.keys/keysPerUser, `INSERT INTO svc_users (id, display_name, inactive)
		SELECT 'u-' || substr('00000' || n.i, length('00000' || n.i) - 5), 'User', 0 FROM {n}`)
	if err != nil {
		return err
	}
	if unknown := s.keys - s.known; unknown > 0 {
		err = s.fill(ctx, unknown, `INSERT INTO svc_api_keys (id, holder_kind, holder_id, prefix, hash, pepper, created_at)
			SELECT {random}, 'user', 'u-' || substr('00000' || (n.i / 10 + 1), length('00000' || (n.i / 10 + 1)) - 5), 'svcu_', {hash}, '1', 1700000000000000 + n.i FROM {n}
			ORDER BY 1`)
		if err != nil {
			return err
		}
	}
	s.issued, err = makeKeys(ctx, s.known, func(i int) svc.Identity { // the first key is the principal's
		return svc.Identity{Kind: svc.KindUser, ID: userID(1 + i*keysPerUser%(s.keys/keysPerUser))}
	})
	if err != nil {
		return err
	}
	return errors.Join(err, s.insert(ctx, s.issued))
}

// insert adds keys in one transaction.
func (s *site) insert(ctx context.Context, keys []svc.IssuedKey) error {
	tx, err := s.bare.write.BeginTx(ctx, readCommitted)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, key := range keys {
		if err := s.bare.insertKey(ctx, tx, key.APIKey); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// ofPrincipal makes the principal the holder of every key.
func ofPrincipal(int) svc.Identity { return principal }

// makeKeys returns keys as the Service makes them, without storing them.
func makeKeys(ctx context.Context, n int, holder func(i int) svc.Identity) (keys []svc.IssuedKey, err error) {
	maker, err := svc.New(config(memstore.New()))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, maker.Close()) }()
	for i := range n {
		key, err := maker.Keys.Issue(ctx, svc.Host, holder(i), svc.NewAPIKey{})
		if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// seedTemplates adds templates whose names are in another order than their ids. Every second one is
// installed.
func (s *site) seedTemplates(ctx context.Context) error {
	return errors.Join(
		s.fill(ctx, s.templates, `INSERT INTO svc_templates (scope, owner, id, name, description, category, integrations, tags,
			source_scope, source_owner, source_name, source_id, source_revision, source_url, installed_at, updated_at, manifest)
			SELECT 'server', '', 't-' || substr('00000' || n.i, length('00000' || n.i) - 5), 'Template ' || {random}, 'What it is for',
			'category-' || (n.i / 20), '["mail","calendar"]', '["everything","tag-' || (n.i / 20) || '"]',
			CASE n.i % 2 WHEN 0 THEN 'server' END, CASE n.i % 2 WHEN 0 THEN '' END, CASE n.i % 2 WHEN 0 THEN 'shop' END,
			CASE n.i % 2 WHEN 0 THEN 'its-id' END, CASE n.i % 2 WHEN 0 THEN 'sha256:0' END,
			CASE n.i % 2 WHEN 0 THEN 'https://shop.example/templates' END, 1700000000000000 + n.i, 1700000000000000, $1 FROM {n}`, manifest),
		s.fill(ctx, 1, `INSERT INTO svc_template_tags (scope, owner, tag, category, name, id)
			SELECT scope, owner, 'everything', category, name, id FROM svc_templates`),
		s.fill(ctx, 1, `INSERT INTO svc_template_tags (scope, owner, tag, category, name, id)
			SELECT scope, owner, 'tag-' || substr(category, 10), category, name, id FROM svc_templates`),
		s.fill(ctx, 1, `INSERT INTO svc_template_bases (scope, owner, id, name, description, category, integrations, tags, manifest)
			SELECT scope, owner, id, name, description, category, integrations, tags, manifest FROM svc_templates WHERE source_id IS NOT NULL`),
		s.fill(ctx, 1, `INSERT INTO svc_sources (scope, owner, name, url, created_at, updated_at)
			VALUES ('server', '', 'shop', 'https://shop.example/templates', 1700000000000000, 1700000000000000)`),
	)
}

// principal is a user with groups and policies.
var principal = svc.Identity{Kind: svc.KindUser, ID: userID(1)}

// principalBundle gives the principal five groups and ten policies: five of its own and one of each
// group.
func principalBundle() svc.Bundle {
	b := svc.Bundle{
		Users:        []svc.User{{ID: principal.ID, DisplayName: "User"}},
		BankPolicies: []svc.BankPolicy{{BankID: "bank", Document: json.RawMessage(`{"version":"2026-03-24","default_strategy":"plain"}`)}},
	}
	for i := range 2 * groups {
		policy := fmt.Sprint("policy-", i)
		to := svc.GrantedTo{Type: svc.GrantedToUser, ID: principal.ID}
		if i < groups {
			to = svc.GrantedTo{Type: svc.GrantedToGroup, ID: fmt.Sprint("group-", i)}
			b.Groups = append(b.Groups, svc.Group{ID: to.ID, Members: []string{principal.ID}})
		}
		b.Policies = append(b.Policies, svc.Policy{ID: policy, Document: json.RawMessage(`{"version":"2026-03-24","statements":[` +
			`{"effect":"allow","actions":["bank:recall","bank:retain"],"banks":["team::*"],"recall_budget":"mid"},` +
			`{"effect":"deny","actions":["bank:delete"],"banks":["*"]}]}`)})
		b.Attachments = append(b.Attachments, svc.Attachment{PolicyID: policy, Principal: to, Priority: int64(i)})
	}
	return b
}
