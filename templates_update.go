package svc

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/extsvc/svc/action"
	"github.com/extsvc/svc/event"
	"github.com/extsvc/svc/internal/merge3"
)

// UpdateRequest chooses how an update works. The zero value is the default. A combination that
// makes no sense is CodeInvalid, before the template is read.
type UpdateRequest struct {
	LocalEdits LocalEdits // a decision, or another rule; "": [TemplateConfig].LocalEdits
	// Content is the whole content that [TakeMerged] gives the template, checked as in
	// [NewTemplate]; nil with everything else.
	Content *Content
	// Revision is the revision of the source's content that the caller has reviewed, such as
	// [UpdateCheck].LatestRevision. If the source now has another one, Update returns
	// CodePrecondition. "": any.
	Revision string
}

// check validates the form of the request. The Field of an error is the name of a query parameter,
// or a pointer into the content.
func (in *UpdateRequest) check() error {
	var c checker
	if e := in.LocalEdits; e != "" && !e.rules() && !e.decides() {
		c.add("local_edits", "must be conflict, overwrite, merge, theirs, ours or merged")
	}
	if in.Revision != "" && !isRevision(in.Revision) {
		c.add("revision", "must be sha256: and 64 hexadecimal digits in lower case")
	}
	if in.LocalEdits == TakeMerged {
		// The request gets a copy. A missing content is an empty one, without its required fields.
		content := cmp.Or(in.Content, &Content{}).clone()
		content.checkForm(&c)
		in.Content = &content
	} else if in.Content != nil {
		c.add("", "a content needs resolution=merged")
	}
	return c.err()
}

// isRevision reports whether a text has the form that [Content.Revision] returns. Hexadecimal
// digits in upper case would match no revision, so they are a mistake of the caller.
func isRevision(text string) bool {
	digits, is := strings.CutPrefix(text, "sha256:")
	sum, err := hex.DecodeString(digits)
	return is && err == nil && len(sum) == 32 && digits == strings.ToLower(digits)
}

// Update is the result of an update. An update that was not needed is no error: Updated is false,
// and Template is the template as it is.
type Update struct {
	Updated          bool     // the template was written
	PreviousRevision string   // the revision of the source's content installed before the update
	NewRevision      string   // the revision installed after it; the same when Updated is false
	Template         Template // with its base; the caller owns it
}

// Update brings a template to the content that its source has now. While the source has not
// changed, a rule keeps local edits; a decision counts all the same. Update compares and merges
// contents before the store's transaction. If the template changes in the meantime, Update does so
// again.
//
// The new content, the base and the former version are one write. InstalledAt and the id stay.
// Events: [event.TemplateUpdated], and [event.TemplateDiverged] when the template was as its source
// gave it and is not any longer. Without a write, there is no event.
//
// Errors:
//   - CodeInvalid: the request is invalid, or the template was made by hand.
//   - CodeNotFound: the template or the source does not exist, or the source lacks the template.
//   - CodeEdited: local edits conflict with the source's content. Fields names them.
//   - CodePrecondition: also when the source has another revision than in.Revision.
//   - CodeChanged: other calls keep changing the template, or it now has another origin, or its
//     source was removed meanwhile.
//   - CodeSourceMoved, CodeSourceFailed, CodeSourceTimeout.
func (s *Templates) Update(
	ctx context.Context, by Principal, id string, in UpdateRequest, ifMatch ...string,
) (Update, error) {
	u, err := s.updater(ctx, by, id, in)
	if err != nil {
		return Update{}, err
	}
	if s.readOnly {
		return Update{}, errReadOnly
	}
	template, now, err := s.latest(ctx, by, u.at, id, ifMatch)
	if err != nil {
		return Update{}, err
	}
	if u.in.Revision != "" && u.in.Revision != now.revision {
		return Update{}, &Error{
			Code: CodePrecondition,
			Message: "the source has another revision than the reviewed one: " +
				"review the new one",
		}
	}
	u.content, u.from, u.former = now.content, now.from, template.Origin.ID
	u.ifMatch, u.now = ifMatch, s.now()
	u.origin = Origin{
		Source: template.Origin.Source, ID: now.id, URL: template.Origin.URL,
		Revision: now.revision,
	}
	return s.update(ctx, by, u, template)
}

// updater validates a request for an update. The host checks its content only after the caller is
// authorized. So far it reads nothing but the rights.
func (s *Templates) updater(
	ctx context.Context, by Principal, id string, in UpdateRequest,
) (*updater, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	// The configuration has "" as well: then LocalEdits stays "", which decide treats as a
	// conflict.
	in.LocalEdits = cmp.Or(in.LocalEdits, s.edits)
	u := &updater{in: in, check: s.checkContent}
	var err error
	u.at, err = s.admitTo(ctx, by, action.TemplateInstall, id)
	if err != nil || in.Content == nil {
		return u, err
	}
	var c checker
	if s.validate(&c, in.Content.Manifest); !c.ok() {
		return nil, c.err()
	}
	u.given, err = in.Content.Revision()
	return u, fault("digest content", err)
}

// update carries out an update of a template that was just read. When another call changes the
// template and the plan no longer fits, update reads the template again. It does not ask the source
// again: the source's content stays what the caller's Revision was compared with.
func (s *Templates) update(
	ctx context.Context, by Principal, u *updater, template Template,
) (Update, error) {
	err := errStale // for the first try
	for try := 0; try < maxPlans && errors.Is(err, errStale); try++ {
		if try > 0 {
			if template, err = s.storedTemplate(ctx, template.TemplateKey); err != nil {
				return Update{}, err
			}
		}
		if err = u.prepare(ctx, template); err != nil {
			break
		}
		write := func(ctx context.Context, tx Store) ([]Event, error) {
			err := stillRegistered(ctx, tx, u.origin.Source, u.from, ErrChanged)
			if err == nil {
				err = tx.ChangeTemplate(ctx, template.TemplateKey, u.change)
			}
			return u.events, err
		}
		err = s.commit(ctx, change{
			by: by, basis: &u.at.basis, begin: s.changesTemplates, write: write,
		})
	}
	if noRow(err) {
		return Update{}, noTemplate()
	} else if err != nil {
		return Update{}, fault("update template", err)
	}
	return u.result, nil
}

// updater decides what an update does to a template. Large manifests take time to compare and
// merge, and no other call should wait for that. So the updater works on the template as read,
// before the store's transaction. Another call may patch, update or replace the template in the
// meantime, so change compares it with the plan once more.
type updater struct {
	at      place                // of the template
	in      UpdateRequest        // checked, with LocalEdits of the configuration
	given   string               // the revision of in.Content
	content Content              // the source's content
	origin  Origin               // where content comes from
	from    time.Time            // when that source was registered
	former  string               // the id that it had there at the last update
	ifMatch []string             // the template must have one of these ETags; none: any
	check   func(*Content) error // validates a merged content
	now     time.Time            // of the whole update, so that its events have the time of its row

	plan   plan    // of the latest try
	result Update  // of the latest call of change, as are the events
	events []Event // of the result; nil: nothing was written
}

// plan holds the results for a template from before the transaction.
type plan struct {
	of      Template // the planned template, as it was read
	own     string   // the revision of its content
	merged  become   // the result of the merge, if the update merges
	refusal error    // why the merge is not possible; nil: it is
}

// become holds the new content of a template. Its revision shows whether the update makes the
// template differ from its source.
type become struct {
	content  Content // to store; its base becomes the source's content
	revision string
}

// maxPlans limits how often an update plans again when other calls keep changing the template. Then
// it returns CodeChanged: a merge of a large manifest costs too much to try for ever.
const maxPlans = 8

// errStale reports that the template differs from the planned one.
var errStale = fmt.Errorf("%w: the template has changed since the merge", ErrChanged)

// prepare makes the plan for a template. It merges only when the update would: a merge costs the
// time of all three manifests.
func (u *updater) prepare(ctx context.Context, t Template) (err error) {
	u.plan = plan{of: t}
	if u.plan.own, err = t.Content.Revision(); err != nil {
		return err
	}
	if t.Origin != nil && u.in.LocalEdits == EditsMerge && u.diverged(&t, u.plan.own) {
		return u.merge(ctx)
	}
	return nil
}

// fits reports whether a template is the planned one, to the letter. Times do not matter: a
// template that was edited and rolled back has the content of the plan.
func (p *plan) fits(t *Template) bool {
	return p.of.Origin != nil && p.of.Content.same(t.Content) &&
		p.of.Origin.Revision == t.Origin.Revision && p.of.Origin.Base.same(t.Origin.Base)
}

// diverged reports whether a template is edited locally and its source has changed differently. own
// is the revision of the template's content. An edit that equals the source's new content is no
// conflict.
func (u *updater) diverged(t *Template, own string) bool {
	return u.origin.Revision != t.Origin.Revision &&
		own != t.Origin.Revision && own != u.origin.Revision
}

// merge plans a merge. A merge that is not possible is no error yet: the template of the
// transaction may differ, and need no merge. The host checks the merged content here, outside of
// the transaction.
func (u *updater) merge(ctx context.Context) error {
	t := u.plan.of // a copy: its lists are shared, and stay
	merged, conflicts, err := merge(ctx, t.Origin.Base, t.Content, u.content)
	if err != nil {
		return err
	}
	u.plan.merged.content = merged
	if conflicts != nil {
		u.plan.refusal = editedLocally(conflicts)
	} else if u.plan.merged.revision, err = merged.Revision(); err != nil {
		return err
	} else if err := u.check(&merged); err != nil {
		u.plan.refusal = &Error{
			Code: CodeEdited,
			Message: "the source has changed, this template was edited locally, " +
				"and the merged content is bad: " + firstMessage(err),
			Fields: differences(t.Content, t.Origin.Base), Err: err,
		}
	}
	return nil
}

// change applies the update to a template. The store calls it in its transaction, perhaps more than
// once, so it sets result and events from the start. It computes a revision only when the plan does
// not fit, and it never merges: no other call should wait for that.
func (u *updater) change(t *Template) (write bool, err error) {
	if t.Origin == nil || t.Origin.Source != u.origin.Source ||
		t.Origin.ID != u.former || t.Origin.URL != u.origin.URL {
		return false, ErrChanged
	}
	if err := t.matches(u.ifMatch); err != nil {
		return false, err
	}
	u.events = nil // of an earlier call
	u.result = Update{
		PreviousRevision: t.Origin.Revision, NewRevision: t.Origin.Revision, Template: *t,
	}
	own := u.plan.own
	if !u.plan.fits(t) {
		if own, err = t.Content.Revision(); err != nil {
			return false, err
		}
	}
	next, err := u.decide(t, own)
	if next == nil || err != nil {
		return false, err
	}
	u.events = happened(u.now, event.TemplateUpdated, t.Target())
	if own == t.Origin.Revision && next.revision != u.origin.Revision {
		u.events = append(u.events, happened(u.now, event.TemplateDiverged, t.Target())...)
	}
	t.put(next.content)
	t.originate(u.origin, u.content)
	t.Origin.Edited = next.revision != u.origin.Revision
	t.touch(u.now)
	u.result.Updated, u.result.NewRevision, u.result.Template = true, u.origin.Revision, *t
	return true, nil
}

// decide returns what a template becomes. own is the revision of its content. Nil: the template
// stays unchanged. By a rule, an unchanged source changes nothing, so local edits stay until the
// source changes. errStale: the merge was planned for another content.
func (u *updater) decide(t *Template, own string) (*become, error) {
	theirs, news := &become{u.content, u.origin.Revision}, u.origin.Revision != t.Origin.Revision
	moved := news || u.origin.ID != t.Origin.ID // or it is renamed there
	switch edits := u.in.LocalEdits; {
	case edits == TakeTheirs:
		return theirs, nil
	case edits == TakeMerged && (moved || !t.Content.same(*u.in.Content)):
		return &become{*u.in.Content, u.given}, nil
	case edits == TakeMerged, !moved:
		return nil, nil
	case edits == KeepOurs, !news: // local edits stay
		return &become{t.Content, own}, nil
	case !u.diverged(t, own): // it has no edits, or those of the source
		return theirs, nil
	case edits == EditsOverwrite: // the edits go to the history
		return theirs, nil
	case edits != EditsMerge:
		return nil, editedLocally(differences(t.Content, t.Origin.Base))
	case !u.plan.fits(t): // update reads the template and merges again
		return nil, errStale
	}
	return &u.plan.merged, u.plan.refusal
}

// editedLocally refuses an update. fields are names of [Content], in its order.
func editedLocally(fields []string) *Error {
	return &Error{
		Code: CodeEdited,
		Message: "the source has changed, and this template was edited locally (" +
			strings.Join(fields, ", ") + "): update with force, or with a resolution",
		Fields: slices.Clone(fields),
	}
}

// merge combines two changed contents that have a common base. conflicts names the fields that it
// cannot combine, in the order of [Content]; then merged is of no use. Its error is the error of
// ctx, or reports a manifest that is not valid JSON.
func merge(
	ctx context.Context, base, ours, theirs Content,
) (merged Content, conflicts []string, err error) {
	field := func(name string, clash bool) {
		if clash {
			conflicts = append(conflicts, name)
		}
	}
	var clash bool
	merged.Name, clash = either(
		base.Name, ours.Name, theirs.Name, func(a, b string) bool { return a == b },
	)
	field("name", clash)
	merged.Description, clash = either(
		base.Description, ours.Description, theirs.Description, equalText,
	)
	field("description", clash)
	merged.Category, clash = either(base.Category, ours.Category, theirs.Category, equalText)
	field("category", clash)
	merged.Integrations, clash = either(
		base.Integrations, ours.Integrations, theirs.Integrations, slices.Equal,
	)
	field("integrations", clash)
	merged.Tags, clash = either(base.Tags, ours.Tags, theirs.Tags, slices.Equal)
	field("tags", clash)
	merged.Manifest, clash, err = merge3.Merge(ctx, base.Manifest, ours.Manifest, theirs.Manifest)
	field("manifest", clash)
	return merged.clone(), conflicts, err
}

// either returns the value that one side has changed. clash reports that both sides have changed
// the value differently. Lists count as one value: merged element by element, their order would be
// chance.
func either[V any](base, ours, theirs V, equal func(V, V) bool) (v V, clash bool) {
	switch {
	case equal(base, theirs):
		return ours, false
	case equal(base, ours), equal(ours, theirs):
		return theirs, false
	}
	return ours, true
}
