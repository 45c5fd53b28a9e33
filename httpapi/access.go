package httpapi

import (
	"bufio"
	"cmp"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/extsvc/svc"
	"github.com/extsvc/svc/internal/wire"
)

// exportAccess sends the bundle of all rows in parts: its JSON may be large.
func (h *Handler) exportAccess(w http.ResponseWriter, r *request) error {
	bundle, err := h.service.Access.Export(r.Context(), r.by)
	if err != nil {
		return err
	}
	w.Header().Set("ETag", quoted(bundle.Revision()))
	parts := bufio.NewWriterSize(&okBody{w: w}, flushAt)
	if err := bundle.WriteJSON(parts); err != nil {
		return err
	}
	_ = parts.WriteByte('\n') // the next line reports its error
	return parts.Flush()
}

// okBody is the body of an answer with 200, which begins with the first part. It accepts the parts
// that a client which is gone does not read.
type okBody struct {
	w     http.ResponseWriter
	begun bool
}

func (b *okBody) Write(part []byte) (int, error) {
	if !b.begun {
		start(b.w, http.StatusOK)
		b.begun = true
	}
	_, _ = b.w.Write(part)
	return len(part), nil
}

func (h *Handler) writeAccess(w http.ResponseWriter, r *request) error {
	how, err := r.bundleWrite()
	if err != nil {
		return err
	}
	text, err := decode[json.RawMessage](h, w, r)
	if err != nil {
		return err
	}
	if len(text) == 0 {
		return svc.Invalid("", "the body is required: a bundle")
	}
	bundle, err := svc.ParseBundleWithin(text, MaxBundleRows)
	if err != nil {
		return err
	}
	err = h.service.Access.Write(r.Context(), r.by, bundle, how)
	if err != nil || !how.DryRun {
		return sendNothing(w, err)
	}
	diff, err := h.service.Access.Preview(r.Context(), r.by, bundle, how)
	if err == nil {
		w.Header().Set("ETag", quoted(diff.Revision))
	}
	return sendResult(w, diff, err, wireDiff)
}

// bundleWrite reads how a bundle is written. Its revision comes in the query or as an entity tag.
func (r *request) bundleWrite() (how svc.BundleWrite, err error) {
	if how.Prune, err = r.query.bool("prune"); err != nil {
		return how, err
	}
	if how.DryRun, err = r.query.bool("dry_run"); err != nil {
		return how, err
	}
	how.Revision = r.query.text("revision")
	tags, err := r.ifMatch()
	if err != nil || len(tags) == 0 || tags[0] == svc.AnyETag {
		return how, err
	}
	for i, tag := range tags {
		tags[i] = strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
	}
	if how.Revision == "" {
		how.Revision = cmp.Or(strings.Join(tags, " "), "none") // an empty tag matches nothing
	} else if !slices.Contains(tags, how.Revision) {
		how.Revision = "none" // no rows have two revisions
	}
	return how, nil
}

// quoted returns the entity tag of a revision.
func quoted(revision string) string { return `"` + revision + `"` }

func wireDiff(d svc.AccessDiff) wire.AccessDiff {
	return wire.AccessDiff{
		Omitted: d.Omitted,
		Turned: wire.Each(d.Turned, func(t svc.AccessTest) wire.AccessTest {
			return wire.AccessTest{
				UserID: t.UserID, ServiceAccountID: t.ServiceAccountID, Sender: t.Sender,
				Action: t.Action, Bank: t.Bank, Channel: t.Channel, Topic: t.Topic,
				Allowed: t.Allowed,
			}
		}),
		Principals: wire.Each(d.Principals, func(p svc.PrincipalsDiff) wire.PrincipalsDiff {
			return wire.PrincipalsDiff{
				Principals:  wire.Each(p.Principals, wireIdentity),
				Differences: wire.Each(p.Differences, wireDifference),
			}
		}),
		Public: wire.Each(d.Public, func(p svc.PublicDiff) wire.PublicDiff {
			return wire.PublicDiff{
				Bank: p.Bank, Context: wire.Context(p.Context),
				Differences: wire.Each(p.Differences, wireDifference),
			}
		}),
		Strategies: wire.Each(d.Strategies, func(s svc.StrategyDiff) wire.StrategyDiff {
			return wire.StrategyDiff{
				Bank: s.Bank, Context: wire.Context(s.Context), Before: s.Before, After: s.After,
			}
		}),
	}
}

func wireDifference(d svc.Difference) wire.Difference {
	return wire.Difference{
		Action: d.Action, Bank: d.Bank, Change: string(d.Change),
		Before: wire.Sets{Parameters: d.Before}, After: wire.Sets{Parameters: d.After},
	}
}

// listAllKeys answers with the keys of all users and service accounts.
func (h *Handler) listAllKeys(w http.ResponseWriter, r *request) error {
	filter, err := r.query.keyFilter()
	if err != nil {
		return err
	}
	return sendKeys(h, w, r, svc.AllHolders, filter, wireHeldAPIKey)
}

// keyFilter reads which keys a list has, and so its order.
func (q query) keyFilter() (filter svc.KeyQuery, err error) {
	if filter.ExpireBefore, err = q.instant("expires_before"); err != nil {
		return filter, err
	}
	filter.UnusedSince, err = q.instant("unused_since")
	return filter, err
}

func wireHeldAPIKey(k svc.APIKey) wire.HeldAPIKey {
	return wire.HeldAPIKey{FullAPIKey: wireFullAPIKey(k), Holder: wireIdentity(k.Holder)}
}
