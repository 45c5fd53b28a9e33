package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"slices"
	"time"

	"github.com/extsvc/svc"
	svcclient "github.com/extsvc/svc/client"
)

// keyRow is a key as the API shows it.
type keyRow struct {
	ID              string     `json:"id"`
	APIKeyPrefix    string     `json:"api_key_prefix"`
	UserID          *string    `json:"user_id,omitempty"`
	ServiceAccount  *string    `json:"service_account_id,omitempty"`
	Description     *string    `json:"description"`
	CreatedAt       time.Time  `json:"created_at"`
	ExpiresAt       *time.Time `json:"expires_at"`
	Disabled        bool       `json:"disabled"`
	LastUsedAt      *time.Time `json:"last_used_at"`
	ScopingPolicyID *string    `json:"scoping_policy_id"`
}

func ofKey(k svc.APIKey) keyRow {
	row := keyRow{
		ID: k.ID, APIKeyPrefix: k.Prefix, Description: k.Description, CreatedAt: k.CreatedAt,
		ExpiresAt: timeOrNil(k.ExpiresAt), Disabled: k.Disabled, LastUsedAt: timeOrNil(k.LastUsedAt), ScopingPolicyID: orNil(k.ScopingPolicyID),
	}
	if row.UserID = &k.Holder.ID; k.Holder.Kind == svc.KindServiceAccount {
		row.UserID, row.ServiceAccount = nil, &k.Holder.ID
	}
	return row
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// holderFlags add the flags that name a holder. The function returns it; zero: none is named.
func holderFlags(flags *flag.FlagSet) func() (svc.Identity, error) {
	user := flags.String("user", "", "the `ID` of a user")
	account := flags.String("service-account", "", "the `ID` of a service account")
	return func() (svc.Identity, error) {
		switch {
		case *user != "" && *account != "":
			return svc.Identity{}, usageError("name -user ID or -service-account ID, not both")
		case *account != "":
			return svc.Identity{Kind: svc.KindServiceAccount, ID: *account}, nil
		case *user != "":
			return svc.Identity{Kind: svc.KindUser, ID: *user}, nil
		}
		return svc.Identity{}, nil
	}
}

// withSecrets calls do with a Service that makes and checks keys.
func (c *call) withSecrets(ctx context.Context, do func(*svc.Service) error) (err error) {
	if err := exists(c.DB); err != nil {
		return err
	}
	keys, err := readSecrets(c.Keys, c.log)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keys file %s does not exist: start the server, which creates it", c.Keys)
	} else if err != nil {
		return err
	}
	h, err := openStore(ctx, c.openDatabase)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.close()) }()
	if err := h.build(c.config, keys, nil, c.log); err != nil {
		return err
	}
	return do(h.service)
}

func listKeys(ctx context.Context, t target, holder svc.Identity) iter.Seq2[svc.APIKey, error] {
	if holder == (svc.Identity{}) {
		holder = svc.AllHolders
	}
	return ask(t, func(s *svc.Service, by svc.Principal) iter.Seq2[svc.APIKey, error] {
		return s.Keys.List(ctx, by, holder, svc.KeyQuery{})
	},
		func(r *svcclient.Client) iter.Seq2[svc.APIKey, error] {
			return r.Keys.List(ctx, holder, svc.KeyQuery{})
		})
}

// namedKey finds a key by its prefix or id.
func namedKey(ctx context.Context, t target, name string) (svc.APIKey, error) {
	if t.local != nil {
		return t.local.Keys.Find(ctx, t.by, name)
	}
	key, found, err := first(listKeys(ctx, t, svc.Identity{}), func(k svc.APIKey) bool { return k.ID == name || k.Prefix == name })
	if err == nil && !found {
		err = fmt.Errorf("there is no such key")
	}
	return key, err
}

var keyCommands = []rows{
	{name: "key list", about: "list the keys of all holders, or of one", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		named := holderFlags(flags)
		return func(ctx context.Context, t target) error {
			holder, err := named()
			if err != nil {
				return err
			}
			return show(c, listKeys(ctx, t, holder), "PREFIX\tHOLDER\tDESCRIPTION\tEXPIRES\tDISABLED", func(k keyRow) []any {
				of := k.UserID
				if of == nil {
					of = k.ServiceAccount
				}
				return []any{k.APIKeyPrefix, of, k.Description, dayOf(k.ExpiresAt), k.Disabled}
			}, ofKey)
		}
	}},
	{name: "key issue", secrets: true, about: "print a new key, and nothing else", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		named, scoping := holderFlags(flags), flags.String("scoping-policy", "", "the `ID` of a policy that limits the key")
		text := flags.String("description", "", "what the key is for, as a `TEXT`")
		lifetime := flags.Duration("expires-in", 0, "how `LONG` the key is valid, such as 720h; without it, for ever")
		return func(ctx context.Context, t target) error {
			holder, err := named()
			if err == nil && holder == (svc.Identity{}) {
				err = usageError("key issue needs exactly one of -user ID and -service-account ID")
			}
			if err != nil {
				return err
			}
			in := svc.NewAPIKey{Description: c.text("description", text), ScopingPolicyID: *scoping}
			if c.given("expires-in") {
				in.ExpiresAt = time.Now().Add(*lifetime)
			}
			if t.local != nil && holder.Kind == svc.KindUser { // the host may issue keys to anybody
				if _, err := t.local.Users.Read(ctx, t.by, holder.ID); err != nil {
					return fmt.Errorf("user %q: %w", holder.ID, err)
				}
			}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.IssuedKey] {
				return of(s.Keys.Issue(ctx, by, holder, in))
			},
				func(r *svcclient.Client) result[svc.IssuedKey] { return of(r.Keys.Issue(ctx, holder, in)) })
			return c.printNew(r)
		}
	}},
	{name: "key rotate", takes: "KEY", secrets: true, about: "print the successor of the key with that prefix or id", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
		overlap := flags.Duration("overlap", 0, "how `LONG` the old key stays valid, such as 1h; without it, it ends at once")
		return func(ctx context.Context, t target) error {
			key, err := namedKey(ctx, t, c.operand)
			if err != nil {
				return err
			}
			in := svc.Rotation{Overlap: *overlap}
			r := ask(t, func(s *svc.Service, by svc.Principal) result[svc.IssuedKey] {
				return of(s.Keys.Rotate(ctx, by, key.Holder, key.ID, in))
			},
				func(r *svcclient.Client) result[svc.IssuedKey] { return of(r.Keys.Rotate(ctx, key.Holder, key.ID, in)) })
			return c.printNew(r)
		}
	}},
	{name: "key revoke", takes: "KEY", about: "revoke the key with that prefix or id", setup: func(_ *flag.FlagSet, c *call) func(context.Context, target) error {
		return func(ctx context.Context, t target) error {
			key, err := namedKey(ctx, t, c.operand)
			if err != nil {
				return err
			}
			err = ask(t, func(s *svc.Service, by svc.Principal) error { return s.Keys.Revoke(ctx, by, key.Holder, key.ID) },
				func(r *svcclient.Client) error { return r.Keys.Revoke(ctx, key.Holder, key.ID) })
			if err != nil {
				return err
			}
			return c.done("revoked key %s of %s", key.Prefix, key.Holder.ID)
		}
	}},
}

func (c *call) printNew(r result[svc.IssuedKey]) error {
	if r.err != nil {
		return r.err
	}
	if c.asJSON {
		return showOne(c, struct {
			keyRow
			APIKey string `json:"api_key"`
		}{ofKey(r.value.APIKey), string(r.value.Key)})
	}
	_, err := fmt.Fprintln(c.stdout, string(r.value.Key))
	return err
}

func dayOf(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.DateOnly)
}

// auditRow is a record as audit prints it.
type auditRow struct {
	Number int64     `json:"number"`
	Time   time.Time `json:"time"`
	Action string    `json:"action"`
	Actor  auditWho  `json:"actor"`
	Target auditWho  `json:"target"`
}

type auditWho struct {
	Kind string `json:"kind"`
	ID   string `json:"id"`
}

func ofRecord(r svc.AuditRecord) auditRow {
	return auditRow{
		r.Number, r.Time, string(r.Action),
		auditWho{string(r.Actor.Kind), r.Actor.ID}, auditWho{string(r.Target.Kind), r.Target.ID},
	}
}

// followPause is the time between two looks of audit -follow.
const followPause = time.Second

var auditCommand = rows{name: "audit", about: "print the newest records, the oldest of them first", setup: func(flags *flag.FlagSet, c *call) func(context.Context, target) error {
	limit := flags.Int("limit", 50, "how `MANY` records")
	follow := flags.Bool("follow", false, "go on with those that follow, until interrupted")
	return func(ctx context.Context, t target) error {
		seen := int64(0)
		for {
			query := svc.AuditQuery{Limit: *limit}
			if seen > 0 {
				query.Limit = 0
			}
			var news []svc.AuditRecord
			for record, err := range ask(t, func(s *svc.Service, by svc.Principal) iter.Seq2[svc.AuditRecord, error] {
				return s.Audit.Records(ctx, by, query)
			},
				func(r *svcclient.Client) iter.Seq2[svc.AuditRecord, error] { return r.Audit.Records(ctx, query) }) {
				if err != nil {
					return err
				}
				if record.Number <= seen {
					break
				}
				news = append(news, record)
			}
			for _, record := range slices.Backward(news) {
				seen = record.Number
				if err := c.printRecord(ofRecord(record)); err != nil {
					return err
				}
			}
			if !*follow {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(followPause):
			}
		}
	}
}}

func (c *call) printRecord(r auditRow) error {
	if c.asJSON {
		return showOne(c, r)
	}
	_, err := fmt.Fprintf(c.stdout, "%d  %s  %s  %s %s  by %s %s\n", r.Number, r.Time.UTC().Format(time.RFC3339), r.Action,
		r.Target.Kind, r.Target.ID, r.Actor.Kind, r.Actor.ID)
	return err
}
