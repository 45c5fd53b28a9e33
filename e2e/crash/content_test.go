//go:build linux

package crash

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/extsvc/svc"
)

// absent is the state of what is not there.
const absent = "absent"

// torn is how the state of what is there by halves starts.
const torn = "torn:"

// templateState is what versions a template's parts have. The texts (name, description, tags …) always agree.
type templateState struct{ texts, manifest, base int } // base 0: made by hand

func (s templateState) String() string {
	return fmt.Sprintf("texts=%d,manifest=%d,base=%d", s.texts, s.manifest, s.base)
}

// content is what a template says when its texts have one version and its manifest another.
func content(id string, texts, manifest int) svc.Content {
	text := fmt.Sprintf("%s v%d", id, texts)
	return svc.Content{
		Name: text, Description: &text, Category: &text,
		Integrations: []string{text},
		Tags:         []string{"all", text, fmt.Sprintf("odd %d", texts%2)},
		Manifest:     json.RawMessage(fmt.Sprintf(`{"version":"%d","fill":%q}`, manifest, fill(id, manifest))),
	}
}

// fill is a text that makes some manifests long: rows of many pages are written by halves more easily.
func fill(id string, version int) string {
	size := 50
	if (len(id)+version)%4 == 0 {
		size = 24_000
	}
	return strings.Repeat(fmt.Sprintf("%s/%d ", id, version), size/10)
}

// bundle is rows of every kind that all say the same version.
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

// object names what a target belongs to: ids are unique over all kinds, a key is known by its holder and the rows of a bundle
// have one id.
func object(t svc.Target) string {
	if t.Kind == svc.TargetAPIKey {
		return t.Holder.ID
	}
	id, _, _ := strings.Cut(t.ID, "/")
	return id
}
