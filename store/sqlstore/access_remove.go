package sqlstore

import (
	"context"
	"slices"

	"github.com/extsvc/svc"
)

// remove deletes the named rows. A row goes after the rows that refer to it; channels and
// memberships go with their user or group. It returns the personal sources and templates that go
// with users, and the templates of others that came from these sources.
func (t accessTx) remove(
	ctx context.Context, named svc.AccessNames,
) (gone, unbound []svc.Target, err error) {
	for _, k := range slices.Backward(kinds) {
		k.remove(ctx, t, &err, &named)
	}
	put(ctx, t, &err, named.Channels, columnsOfChannel, `DELETE FROM svc_channels
		WHERE (provider, sender_id) IN (SELECT value->>0, value->>1 FROM {rows})`)
	pick(ctx, t, &err, &gone, scanGoneSource, named.Users, itself, `DELETE FROM svc_sources
		WHERE owner IN (SELECT value FROM {ids}) AND scope = 'personal' RETURNING owner, name`)
	pick(ctx, t, &err, &gone, scanGoneTemplate, named.Users, itself, `DELETE FROM svc_templates
		WHERE owner IN (SELECT value FROM {ids}) AND scope = 'personal' RETURNING owner, id`)
	if err == nil && len(named.Users) > 0 {
		err = t.lock(ctx, "installations")
	}
	pick(ctx, t, &err, &unbound, scanUnbound, named.Users, itself, `UPDATE svc_templates
		SET source_url = '' WHERE source_scope = 'personal' AND source_name IS NOT NULL
		AND source_owner IN (SELECT value FROM {ids}) AND source_url <> ''
		RETURNING scope, owner, id`)
	if err == nil {
		err = t.answers(ctx)
	}
	return gone, unbound, err
}

func scanUnbound(row scanner) (svc.Target, error) {
	key, err := scanTemplateKey(row)
	return key.Target(), err
}

func columnsOfChannel(c svc.Channel) any { return []any{c.Provider, c.SenderID} }

func scanGoneSource(row scanner) (svc.Target, error) {
	key := svc.SourceKey{Scope: svc.ScopePersonal}
	err := row.Scan(&key.Owner, &key.Name)
	return key.Target(), err
}

func scanGoneTemplate(row scanner) (svc.Target, error) {
	key := svc.TemplateKey{Scope: svc.ScopePersonal}
	err := row.Scan(&key.Owner, &key.ID)
	return key.Target(), err
}
