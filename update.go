package svc

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// UpdateRequest says how an update is made. The zero value is the default.
type UpdateRequest struct {
	// Force takes the source's content, whatever was edited here, as [TakeTheirs] does. No other
	// Resolution goes with it.
	Force bool
	// Resolution settles what was edited here. "": LocalEdits decides.
	Resolution UpdateResolution
	// Content is what [TakeMerged] gives the template: a whole content, checked as that of
	// [CreateTemplate]. Nil with all others.
	Content *Content
	// LocalEdits replaces [TemplateConfig].LocalEdits for this request. "": that of the
	// configuration. A Resolution outdoes it.
	LocalEdits LocalEdits
	// Revision is that of the source's content that the caller has reviewed, such as
	// [UpdateCheck].LatestRevision. When the source has another by now, the update is refused with
	// CodePrecondition. "": any revision will do.
	Revision string
}

// UpdateResolution says how an update settles what was edited here against what the source has.
type UpdateResolution string

// The resolutions. Each makes the source's content the base, so that it counts as installed: a
// check finds no update, and what differs from it counts as edited here. What is replaced becomes a
// version.
const (
	// TakeTheirs takes the source's content.
	TakeTheirs UpdateResolution = "theirs"
	// KeepOurs keeps the template's content. Where the source has not changed, nothing is written.
	KeepOurs UpdateResolution = "ours"
	// TakeMerged takes [UpdateRequest].Content. Where it is there already and the source has not
	// changed, nothing is written.
	TakeMerged UpdateResolution = "merged"
)

// check returns the request in one form, with its Force in Resolution, or says what is wrong with
// its form.
func (in UpdateRequest) check() (UpdateRequest, error) {
	var c checker
	switch in.Resolution {
	case "", TakeTheirs, KeepOurs, TakeMerged:
	default:
		c.add("resolution", "must be theirs, ours or merged")
	}
	if in.Force && in.Resolution != "" && in.Resolution != TakeTheirs {
		c.add("resolution", "must be theirs, or absent, with force")
	}
	if in.LocalEdits != "" && !in.LocalEdits.known() {
		c.add("local_edits", "must be conflict, overwrite or merge")
	}
	if in.Revision != "" && !isRevision(in.Revision) {
		c.add("revision", "must be sha256: and 64 hexadecimal digits in lower case")
	}
	in.checkContent(&c)
	if in.Force {
		in.Resolution = TakeTheirs
	}
	return in, c.err()
}

// checkContent says what is wrong with the form of the content, and compacts its manifest.
func (in *UpdateRequest) checkContent(c *checker) {
	switch {
	case in.Resolution == TakeMerged:
		var content Content
		if in.Content != nil {
			content = *in.Content
		}
		content = content.clone()
		content.checkForm(c)
		in.Content = &content
	case in.Content != nil:
		c.add("", "a content is taken with resolution=merged only")
	}
}

func (e LocalEdits) known() bool {
	return e == EditsConflict || e == EditsOverwrite || e == EditsMerge
}

// isRevision reports whether a text has the form of what [Content.Revision] returns.
func isRevision(text string) bool {
	digits, is := strings.CutPrefix(text, "sha256:")
	sum, err := hex.DecodeString(digits)
	return is && err == nil && len(sum) == 32 && digits == strings.ToLower(digits)
}

// updater decides what an update does to a template. Comparing and merging take time where
// manifests are large, and nothing waits for them: they are done for the template as it was read,
// before the store's transaction. That template may have been patched, updated or replaced since,
// so change looks at it once more.
type updater struct {
	in      UpdateRequest
	given   string  // the revision of in.Content
	content Content // what the source has
	origin  Origin  // where that comes from
	ifMatch []string
	check   func(Content) error // of what a merge comes to
	now     time.Time

	plan   plan
	result Update
	events []Event
}

// plan is what was found out of a template before the transaction.
type plan struct {
	of      Template
	own     string  // the revision of its content
	merged  Content // what a merge comes to, where one is made
	refusal error   // why it cannot be made
}

// become is what a template is to become.
type become struct {
	content  Content
	revision string // "": not asked for, for what was edited here before
}

// maxPlans is how often an update plans for a template that others keep changing.
const maxPlans = 8

// errStale says that the template is not the one of the plan.
var errStale = fmt.Errorf("%w: the template is not the one that was merged", ErrChanged)

// prepare plans for a template.
func (u *updater) prepare(ctx context.Context, t Template) (err error) {
	u.plan = plan{of: t}
	if u.plan.own, err = t.Content.Revision(); err != nil {
		return err
	}
	if t.Origin != nil && u.in.Resolution == "" && u.in.LocalEdits == EditsMerge && u.diverged(&t, u.plan.own) {
		return u.merge(ctx)
	}
	return nil
}

// fits reports whether a template is the one that was planned for, to the letter.
func (p *plan) fits(t *Template) bool {
	return p.of.Origin != nil && p.of.Content.same(t.Content) && p.of.Origin.Revision == t.Origin.Revision &&
		p.of.Origin.Base.same(t.Origin.Base)
}

// diverged reports whether a template whose content has that revision was edited here while its
// source has changed, and not alike.
func (u *updater) diverged(t *Template, own string) bool {
	return u.origin.Revision != t.Origin.Revision && own != t.Origin.Revision && own != u.origin.Revision
}

func (u *updater) merge(ctx context.Context) error {
	t := u.plan.of
	merged, conflicts, err := merge(ctx, t.Origin.Base, t.Content, u.content)
	if err != nil {
		return err
	}
	u.plan.merged = merged
	if conflicts != nil {
		u.plan.refusal = editedLocally(conflicts)
	} else if err := u.check(merged); err != nil {
		u.plan.refusal = &Error{
			Code: CodeEdited, Message: "the source has changed, and so was this template here, and what both come to is bad: " +
				firstMessage(err), Fields: differences(t.Content, t.Origin.Base), Err: err,
		}
	}
	return nil
}

// change is what the store calls in its transaction.
func (u *updater) change(t *Template) (write bool, err error) {
	if t.Origin == nil || t.Origin.Source != u.origin.Source || t.Origin.ID != u.origin.ID || t.Origin.URL != u.origin.URL {
		return false, ErrChanged
	}
	if err := t.matches(u.ifMatch); err != nil {
		return false, err
	}
	u.events = nil
	u.result = Update{PreviousRevision: t.Origin.Revision, NewRevision: t.Origin.Revision, Template: *t}
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
	u.events = happened(u.now, EventTemplateUpdated, t.Target())
	if own == t.Origin.Revision && next.revision != u.origin.Revision {
		u.events = append(u.events, happened(u.now, EventTemplateDiverged, t.Target())...)
	}
	t.put(next.content)
	t.originate(u.origin, u.content)
	t.touch(u.now)
	u.result.Updated, u.result.NewRevision, u.result.Template = true, u.origin.Revision, *t
	return true, nil
}

// decide returns what becomes of a template whose content has the revision own; nil: it stays as it
// is.
func (u *updater) decide(t *Template, own string) (*become, error) {
	theirs, news := &become{u.content, u.origin.Revision}, u.origin.Revision != t.Origin.Revision
	switch u.in.Resolution {
	case TakeTheirs:
		return theirs, nil
	case KeepOurs:
		if news {
			return &become{t.Content, own}, nil
		}
		return nil, nil
	case TakeMerged:
		if news || !t.Content.same(*u.in.Content) {
			return &become{*u.in.Content, u.given}, nil
		}
		return nil, nil
	}
	switch {
	case !news:
		return nil, nil
	case u.diverged(t, own):
		return u.reconcile(t, theirs)
	}
	return theirs, nil
}

// reconcile returns what a template becomes that was edited here and whose source has changed.
func (u *updater) reconcile(t *Template, theirs *become) (*become, error) {
	switch u.in.LocalEdits {
	case EditsOverwrite:
		return theirs, nil
	case EditsMerge:
		if !u.plan.fits(t) {
			return nil, errStale
		}
		return &become{content: u.plan.merged}, u.plan.refusal
	}
	return nil, editedLocally(differences(t.Content, t.Origin.Base))
}

func editedLocally(fields []string) *Error {
	return &Error{
		Code: CodeEdited,
		Message: "the source has changed, and so was this template here (" + strings.Join(fields, ", ") +
			"): update with force to replace it, or with a resolution",
		Fields: slices.Clone(fields),
	}
}
