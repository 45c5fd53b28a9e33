//go:build linux

package crash

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
)

// absent is the state of an object that does not exist.
const absent = "absent"

// torn begins the state of an object with only some of its rows.
const torn = "torn:"

// templateState holds the versions of a template's parts. The texts (name, description, tags …)
// always have one version.
type templateState struct{ texts, manifest, base int } // base 0: made by hand

func (s templateState) String() string {
	return fmt.Sprintf("texts=%d,manifest=%d,base=%d", s.texts, s.manifest, s.base)
}

// content returns a template's content with these versions of texts and manifest.
func content(id string, texts, manifest int) svc.Content {
	text := fmt.Sprintf("%s v%d", id, texts)
	return svc.Content{
		Name: text, Description: &text, Category: &text,
		Integrations: []string{text},
		Tags:         []string{"all", text, fmt.Sprintf("odd %d", texts%2)},
		Manifest:     json.RawMessage(fmt.Sprintf(`{"version":"%d","fill":%q}`, manifest, fill(id, manifest))),
	}
}

// fill returns a text that makes some manifests long: rows of many pages tear more easily.
func fill(id string, version int) string {
	size := 50
	if (len(id)+version)%4 == 0 {
		size = 24_000
	}
	return strings.Repeat(fmt.Sprintf("%s/%d ", id, version), size/10)
}

// bundle returns rows of every kind, all of one version.
func bundle(id string, version int) svc.Bundle {
	text := versioned(version)
	return svc.Bundle{
		Users:           []svc.User{{ID: id, DisplayName: text, Channels: []svc.Channel{{Provider: "chat", SenderID: id + " " + text}}}},
		Groups:          []svc.Group{{ID: id, DisplayName: text, Members: []string{id}}},
		ServiceAccounts: []svc.ServiceAccount{{ID: id, DisplayName: text, OwnerUserID: id, ScopingPolicyID: id}},
		Policies: []svc.Policy{{ID: id, DisplayName: text, Document: json.RawMessage(`{"version":"2026-03-24","statements":[` +
			`{"effect":"allow","actions":["bank:recall"],"banks":["` + text + `"]}]}`)}},
		Attachments: []svc.Attachment{{PolicyID: id, Principal: svc.GrantedTo{Type: svc.GrantedToUser, ID: id}, Priority: int64(version)}},
		BankPolicies: []svc.BankPolicy{{BankID: id, Document: json.RawMessage(
			`{"version":"2026-03-24","default_strategy":"` + text + `"}`)}},
	}
}

func versioned(version int) string { return fmt.Sprintf("v%d", version) }

// object returns the name of a target's object. Ids are unique over all kinds; a key goes by its
// holder; all rows of a bundle share an id.
func object(t svc.Target) string {
	if t.Kind == svc.TargetAPIKey {
		return t.Holder.ID
	}
	if t.Kind == svc.TargetChannel {
		id, _, _ := strings.Cut(strings.TrimPrefix(t.ID, "chat:"), " ")
		return id
	}
	id, _, _ := strings.Cut(t.ID, "/")
	return id
}
