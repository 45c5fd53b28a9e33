package keyring_test

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/extsvc/svc/internal/keyring"
	"github.com/extsvc/svc/internal/token"
)

// values keeps values in memory.
type values map[string][]byte

func (v values) KeepValue(_ context.Context, name string, value []byte) ([]byte, error) {
	if v == nil {
		return nil, errors.New("down")
	}
	if v[name] == nil {
		v[name] = value
	}
	return v[name], nil
}

var (
	one = keyring.Pepper{Version: "1", Secret: []byte("the first pepper")}
	two = keyring.Pepper{Version: "2", Secret: []byte("the second pepper of two")}
)

func TestNewNamesThePepper(t *testing.T) {
	for want, peppers := range map[string][]keyring.Pepper{
		"Peppers[0].Secret must be":                      {{Version: "1", Secret: []byte("fifteen bytes..")}},
		"Peppers[1].Secret must be":                      {one, {Version: "2"}},
		"Peppers[1].Secret must be at":                   {one, {Version: "2", Secret: []byte("x"), Retired: true}},
		"Peppers[0].Version must be":                     {{Version: "not one", Secret: one.Secret}},
		"Peppers[0].Version must be 1":                   {{Secret: one.Secret}},
		"Peppers[0].Version must be 1 to":                {{Version: strings.Repeat("1", 33), Secret: one.Secret}},
		"Peppers[0].Retired: ":                           {{Version: "1", Secret: one.Secret, Retired: true}},
		"Peppers[0].Retired: the first":                  {{Retired: true}},
		"Peppers[1].Version: \"1\" is":                   {one, one},
		"Peppers[2].Version: \"\" is":                    {one, {}, {}},
		"Peppers[2].Secret: it is that of version \"1\"": {one, two, {Version: "3", Secret: one.Secret}},
	} {
		_, err := keyring.New(keyring.Config{Peppers: peppers})
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("want %s, got %v", want, err)
		}
	}
}

// A key is good under the pepper of its row, and nothing under one that is retired or unknown.
func TestPeppers(t *testing.T) {
	is := is.New(t)
	key := token.Imported("u_", []byte("sixteen bytes, at least"))
	claim := keyring.Claim{Token: key, Kind: "user", Good: true}
	bare, first, both := ring(t), ring(t, one), ring(t, two, one)
	rows := []struct {
		pepper string
		hash   [32]byte
	}{
		{bare.Version(), bare.Hash("user", key)},
		{first.Version(), first.Hash("user", key)},
		{both.Version(), both.Hash("user", key)},
		{"1", bare.Hash("user", key)},
		{"unknown", both.Hash("user", key)},
		{"1", both.Hash("user", key)},
	}
	retired := []keyring.Pepper{{Version: "1", Retired: true}, {Retired: true}}
	for _, c := range []struct {
		ring    *keyring.Ring
		accepts []bool
	}{
		{bare, []bool{true, false, false, false, false, false}},
		{first, []bool{false, true, false, false, false, false}},
		{both, []bool{false, true, true, false, false, false}},
		{ring(t, two, one, keyring.Pepper{}), []bool{true, true, true, false, false, false}},
		{ring(t, two, retired[0]), []bool{false, false, true, false, false, false}},
		{ring(t, two, retired[0], retired[1]), []bool{false, false, true, false, false, false}},
	} {
		var accepts []bool
		for _, row := range rows {
			place := c.ring.Place(row.pepper)
			accepts = append(accepts, c.ring.Matches(claim, "user", row.hash, place))
		}
		is.Equal(accepts, c.accepts)
	}
}

// The tag of an id says under which pepper the key was issued, for as long as that is in the list.
func TestTags(t *testing.T) {
	is := is.New(t)
	store, gone := values{}, keyring.Pepper{Version: "1", Retired: true} // its secret is gone
	tags := func(r *keyring.Ring) keyring.Tags {
		tags, err := r.Tags(t.Context(), store, true)
		is.NoErr(err)
		return tags
	}
	claim := func(r *keyring.Ring) keyring.Claim {
		return keyring.Claim{Token: r.Draw("user", tags(r)), Kind: "user", Good: true}
	}
	bare, first := claim(ring(t)), claim(ring(t, one))
	is.True(tags(ring(t)).Issued(bare) && !tags(ring(t)).Issued(first))
	is.True(!tags(ring(t, one)).Issued(bare) && tags(ring(t, one)).Issued(first))
	both := ring(t, two, one, keyring.Pepper{})
	is.True(tags(both).Issued(bare) && tags(both).Issued(first))
	is.True(tags(both).Issued(keyring.Claim{Token: token.Imported("sk-", []byte("key")), Good: true}))

	is.True(!tags(ring(t, two, keyring.Pepper{Version: "3", Retired: true})).Issued(first))
	is.True(both.KeepTags(t.Context(), values(nil)) != nil)
	is.NoErr(both.KeepTags(t.Context(), store))
	is.True(tags(ring(t, two, gone)).Issued(first))
	is.True(store["api-key-tag-2"] == nil) // the first pepper's follows from its secret
}

// What a transaction has read may be undone: the next call reads again.
func TestTagsAreRemembered(t *testing.T) {
	is := is.New(t)
	r := ring(t)
	undone, err := r.Tags(t.Context(), values{}, false)
	is.NoErr(err)
	kept, err := r.Tags(t.Context(), values{}, true)
	is.NoErr(err)
	is.True(!bytes.Equal(undone[0], kept[0]))
	again, err := r.Tags(t.Context(), values(nil), true)
	is.NoErr(err)
	is.Equal(again, kept)
	_, err = ring(t).Tags(t.Context(), values(nil), true)
	is.True(err != nil)
}

// Every field that says what a key is good for changes the seal.
func TestSeal(t *testing.T) {
	is := is.New(t)
	r, at := ring(t, two, one), time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	row := keyring.Row{
		ID: "id", Kind: "user", Holder: "alice", Prefix: "u_id", Hash: []byte("hash"), Pepper: "1",
		ScopingPolicyID: "narrow", CreatedAt: at, ExpiresAt: at.Add(time.Hour), Disabled: true,
	}
	row.Seal = r.Seal(row)
	is.True(r.Sealed(row))
	is.Equal(len(row.Seal), 32)
	fields := reflect.TypeFor[keyring.Row]()
	for i := range fields.NumField() {
		if name := fields.Field(i).Name; name == "Pepper" || name == "Revoked" || name == "Seal" {
			continue
		}
		other := row
		field := reflect.ValueOf(&other).Elem().Field(i)
		field.SetZero()
		if r.Sealed(other) {
			t.Errorf("%s is not sealed", fields.Field(i).Name)
		}
	}
	moved := row
	moved.ID, moved.Kind = "idu", "ser" // the same bytes in other fields
	is.True(!r.Sealed(moved))
	moved = row
	moved.Pepper = "2"
	is.True(!r.Sealed(moved))
	moved = row
	moved.Revoked, moved.Hash, moved.Seal = true, nil, nil
	is.True(r.Sealed(moved))
}

// A row without a seal is good where no secret seals it, or where the pepper says so.
func TestUnsealed(t *testing.T) {
	is := is.New(t)
	lenient := two
	lenient.AcceptUnsealed = true
	r := ring(t, one, lenient, keyring.Pepper{})
	for version, sealed := range map[string]bool{"1": false, "2": true, "": true, "unknown": true} {
		is.Equal(r.Sealed(keyring.Row{Pepper: version}), sealed)
	}
	is.True(!r.Sealed(keyring.Row{Pepper: "2", Seal: []byte("wrong")}))
	is.Equal(r.Seal(keyring.Row{}), nil)
	is.Equal(r.Seal(keyring.Row{Pepper: "unknown"}), nil)

	is.True(!r.Outdated(0, false) && r.Outdated(0, true) && r.Outdated(1, false))
	is.True(!ring(t).Outdated(0, true)) // nothing seals there
}
