package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"time"

	"github.com/extsvc/svc"
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
		ID:              k.ID,
		APIKeyPrefix:    k.Prefix,
		Description:     k.Description,
		CreatedAt:       k.CreatedAt,
		ExpiresAt:       timeOrNil(k.ExpiresAt),
		Disabled:        k.Disabled,
		LastUsedAt:      timeOrNil(k.LastUsedAt),
		ScopingPolicyID: orNil(k.ScopingPolicyID),
	}
	if row.UserID = &k.Holder.ID; k.Holder.Kind == svc.KindServiceAccount {
		row.UserID, row.ServiceAccount = nil, &k.Holder.ID
	}
	return row
}

func (k keyRow) cells() []any {
	holder := k.UserID
	if holder == nil {
		holder = k.ServiceAccount
	}
	return []any{k.APIKeyPrefix, holder, k.Description, dayOf(k.ExpiresAt), k.Disabled}
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

// withSecrets is withKeys for a command that needs a server to have made the keys file.
func (c *call) withSecrets(ctx context.Context, do func(*host) error) error {
	if err := exists(c.DB); err != nil {
		return err
	}
	if _, err := os.Stat(c.Keys); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("keys file %s does not exist: start the server, which creates it", c.Keys)
	}
	return c.withKeys(ctx, c.openDatabase, do)
}

// namedKey finds a key by its prefix or id.
func namedKey(ctx context.Context, t target, name string) (svc.APIKey, error) {
	if t.local != nil {
		return t.local.Keys.Find(ctx, t.by, name)
	}
	for key, err := range t.keys(ctx, svc.AllHolders) {
		if err != nil || key.ID == name || key.Prefix == name {
			return key, err
		}
	}
	return svc.APIKey{}, errors.New("there is no such key")
}

var keyCommands = []rows{
	{
		name: "key list", about: "list the keys of all holders, or of one",
		reads: true, setup: listKeys,
	},
	{
		name: "key issue", secrets: true, about: "print a new key, and nothing else",
		setup: printNewKey,
	},
	{
		name: "key rotate", takes: "KEY", secrets: true,
		about: "print the successor of the key with that prefix or id",
		setup: printSuccessor,
	},
	{
		name: "key revoke", takes: "KEY", about: "revoke the key with that prefix or id",
		setup: flagless(revokeKey),
	},
}

func listKeys(flags *flag.FlagSet, c *call) rowsAction {
	named := holderFlags(flags)
	return func(ctx context.Context, t target) error {
		holder, err := named()
		if err != nil {
			return err
		}
		if holder == (svc.Identity{}) {
			holder = svc.AllHolders
		}
		return show(c, t.keys(ctx, holder), "PREFIX\tHOLDER\tDESCRIPTION\tEXPIRES\tDISABLED", ofKey)
	}
}

func printNewKey(flags *flag.FlagSet, c *call) rowsAction {
	named := holderFlags(flags)
	scoping := flags.String("scoping-policy", "", "the `ID` of a policy that limits the key")
	text := flags.String("description", "", "what the key is for, as a `TEXT`")
	lifetime := flags.Duration("expires-in", 0,
		"how `LONG` the key is valid, such as 720h; without it, for ever")
	return func(ctx context.Context, t target) error {
		holder, err := named()
		if err == nil && holder == (svc.Identity{}) {
			err = usageError("key issue needs exactly one of -user ID and -service-account ID")
		}
		if err != nil {
			return err
		}
		in := svc.NewAPIKey{Description: c.text("description", text), ScopingPolicyID: *scoping}
		if c.flagged["expires-in"] {
			in.ExpiresAt = time.Now().Add(*lifetime)
		}
		issued, err := t.issueKey(ctx, holder, in)
		if err != nil {
			return err
		}
		return c.printNew(ctx, t, issued)
	}
}

func printSuccessor(flags *flag.FlagSet, c *call) rowsAction {
	overlap := flags.Duration("overlap", 0,
		"how `LONG` the old key stays valid, such as 1h; without it, it ends at once")
	return func(ctx context.Context, t target) error {
		key, err := namedKey(ctx, t, c.operand)
		if err != nil {
			return err
		}
		return c.succeed(ctx, t, key, *overlap)
	}
}

// printing is how long an old key without overlap may outlive the printing of its successor.
const printing = time.Minute

// succeed rotates a key. Without overlap it ends when its successor is printed. A key whose
// successor cannot be printed keeps its expiry. A holder who has no room for both keys ends
// the old one first.
func (c *call) succeed(
	ctx context.Context, t target, key svc.APIKey, overlap time.Duration,
) error {
	issued, err := t.rotateKey(ctx, key, svc.Rotation{Overlap: cmp.Or(overlap, printing)})
	if svc.ErrorCode(err) == svc.CodeLimit && overlap == 0 {
		if issued, err = t.rotateKey(ctx, key, svc.Rotation{}); err == nil {
			return c.printNew(ctx, t, issued)
		}
	}
	if err != nil {
		return err
	}
	if err = c.printNew(ctx, t, issued); err == nil && overlap == 0 {
		return t.revoke(ctx, key)
	} else if err == nil || !key.ExpiresAt.IsZero() && !key.ExpiresAt.After(time.Now()) {
		return err
	}
	if _, left := t.setExpiry(context.WithoutCancel(ctx), key); left != nil {
		return fmt.Errorf("%w; give the old key %s its expiry again: %w", err, key.Prefix, left)
	}
	return fmt.Errorf("%w; the old key %s stays valid", err, key.Prefix)
}

// setExpiry sets the expiry of a key, also to none.
func (t target) setExpiry(ctx context.Context, key svc.APIKey) (svc.APIKey, error) {
	patch := svc.APIKeyPatch{ExpiresAt: &key.ExpiresAt}
	if t.local != nil {
		return t.local.Keys.Patch(ctx, t.by, key.Holder, key.ID, patch)
	}
	return t.far.Keys.Patch(ctx, key.Holder, key.ID, patch)
}

func revokeKey(ctx context.Context, c *call, t target) error {
	key, err := namedKey(ctx, t, c.operand)
	if err != nil {
		return err
	}
	return c.done(t.revoke(ctx, key), "revoked key %s of %s", key.Prefix, key.Holder.ID)
}

func (t target) revoke(ctx context.Context, key svc.APIKey) error {
	if t.local != nil {
		return t.local.Keys.Revoke(ctx, t.by, key.Holder, key.ID)
	}
	return t.far.Keys.Revoke(ctx, key.Holder, key.ID)
}

func (t target) keys(ctx context.Context, holder svc.Identity) iter.Seq2[svc.APIKey, error] {
	if t.local != nil {
		return t.local.Keys.List(ctx, t.by, holder, svc.KeyQuery{})
	}
	return t.far.Keys.List(ctx, holder, svc.KeyQuery{})
}

func (t target) issueKey(
	ctx context.Context, holder svc.Identity, in svc.NewAPIKey,
) (svc.IssuedKey, error) {
	if t.local == nil {
		return t.far.Keys.Issue(ctx, holder, in)
	}
	if holder.Kind == svc.KindUser { // the host may issue keys to anybody
		if _, err := t.local.Users.Read(ctx, t.by, holder.ID); err != nil {
			return svc.IssuedKey{}, fmt.Errorf("user %q: %w", holder.ID, err)
		}
	}
	return t.local.Keys.Issue(ctx, t.by, holder, in)
}

func (t target) rotateKey(
	ctx context.Context, key svc.APIKey, in svc.Rotation,
) (svc.IssuedKey, error) {
	if t.local != nil {
		return t.local.Keys.Rotate(ctx, t.by, key.Holder, key.ID, in)
	}
	return t.far.Keys.Rotate(ctx, key.Holder, key.ID, in)
}

// printNew prints a new key, or revokes it: nobody has seen it then.
func (c *call) printNew(ctx context.Context, t target, issued svc.IssuedKey) error {
	var err error
	if c.asJSON {
		err = showOne(c, struct {
			keyRow
			APIKey string `json:"api_key"`
		}{ofKey(issued.APIKey), string(issued.Key)})
	} else {
		_, err = fmt.Fprintln(c.stdout, string(issued.Key))
	}
	if err == nil {
		return nil
	}
	if left := t.revoke(context.WithoutCancel(ctx), issued.APIKey); left != nil {
		return fmt.Errorf("%w; revoke the new key %s, which nobody has seen: %w",
			err, issued.Prefix, left)
	}
	return fmt.Errorf("%w: the new key %s is revoked, because nobody has seen it",
		err, issued.Prefix)
}

func dayOf(t *time.Time) string {
	if t == nil {
		return "never"
	}
	return t.UTC().Format(time.DateOnly)
}
