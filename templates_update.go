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

	"github.com/extsvc/svc/internal/threeway"
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

// UpdateCheck is what a source says about an installed template.
type UpdateCheck struct {
	HasUpdate       bool
	CurrentRevision *string    // nil: made by hand
	LatestRevision  *string    // nil: made by hand, or gone from the source
	Source          *SourceKey // nil: made by hand
}

// Update is what an update did.
type Update struct {
	Updated          bool
	PreviousRevision string // of the source's content that was installed before
	NewRevision      string // and after; the same when nothing was updated
	Template         Template
}

// CheckUpdate asks a template's source whether it has another content than what was installed. A template made by hand
// has no update; one that is gone from its source has none either. Errors: CodeInvalid, CodeForbidden, CodeNotFound (the
// template, or its source by name), CodeSourceMoved, CodeSourceFailed, CodeSourceTimeout.
func (s *Templates) CheckUpdate(ctx context.Context, by Principal, id string) (UpdateCheck, error) {
	template, err := s.template(ctx, by, id)
	if err != nil || template.Origin == nil {
		return UpdateCheck{}, err
	}
	origin := template.Origin
	result := UpdateCheck{CurrentRevision: &origin.Revision, Source: &origin.Source}
	up, err := s.originUpstream(ctx, origin)
	if err != nil {
		return UpdateCheck{}, err
	}
	_, revision, err := s.fetch(ctx, by, up, origin.ID)
	if ErrorCode(err) == CodeNotFound {
		return result, nil
	} else if err != nil {
		return UpdateCheck{}, err
	}
	result.LatestRevision, result.HasUpdate = &revision, revision != origin.Revision
	return result, nil
}

// latest reads a template that came from a source, and asks that what it has now.
func (s *Templates) latest(ctx context.Context, by Principal, id string) (template Template, content Content, revision string, err error) {
	if template, err = s.template(ctx, by, id); err != nil {
		return template, content, "", err
	}
	if template.Origin == nil {
		return template, content, "", invalid("template_id", "names a template that was made by hand: it has no source to be updated from")
	}
	up, err := s.originUpstream(ctx, template.Origin)
	if err != nil {
		return template, content, "", err
	}
	content, revision, err = s.fetch(ctx, by, up, template.Origin.ID)
	return template, content, revision, err
}

// Update brings a template to what its source has now. What was edited here is kept while
// the source has not changed; when it has, in.LocalEdits says what becomes of it, unless
// in.Resolution settles it in both cases. The content is compared and merged before the store's
// transaction, and again when somebody else has changed the template meanwhile.
//
// Errors: CodeInvalid (made by hand, too), CodeForbidden, CodeNotFound (template, source, or gone
// from the source), CodeEdited, CodePrecondition (with ifMatch, a template that has none of these
// ETags; with in.Revision, a source that has another), CodeChanged (others keep changing the
// template, or it comes from elsewhere now), CodeSourceMoved, CodeSourceFailed, CodeSourceTimeout.
func (s *Templates) Update(ctx context.Context, by Principal, id string, in UpdateRequest, ifMatch ...string) (Update, error) {
	u, err := s.updater(ctx, by, id, in)
	if err != nil {
		return Update{}, err
	}
	template, content, revision, err := s.latest(ctx, by, id)
	if err != nil {
		return Update{}, err
	}
	if u.in.Revision != "" && u.in.Revision != revision {
		return Update{}, &Error{
			Code:    CodePrecondition,
			Message: "the source has another revision than the one reviewed: review what it has now",
		}
	}
	u.content, u.ifMatch, u.now = content, ifMatch, s.now()
	u.origin = Origin{Source: template.Origin.Source, ID: template.Origin.ID, URL: template.Origin.URL, Revision: revision}
	return s.update(ctx, by, u, template)
}

// updater checks a request for an update, and lets the host check its content once the caller is
// authorized.
func (s *Templates) updater(ctx context.Context, by Principal, id string, in UpdateRequest) (*updater, error) {
	in, err := in.check()
	if err != nil {
		return nil, err
	}
	in.LocalEdits = cmp.Or(in.LocalEdits, s.config.Templates.LocalEdits)
	u := &updater{in: in, check: s.checked}
	if in.Content == nil {
		return u, nil
	}
	if err := s.authorizeTemplate(ctx, by, id); err != nil {
		return nil, err
	}
	var c checker
	if s.validate(&c, in.Content.Manifest); !c.ok() {
		return nil, c.err()
	}
	u.given, err = in.Content.Revision()
	return u, fault("digest content", err)
}

// update makes an update of a template that was just read. When others change it meanwhile, so that
// the plan does not fit, it is read again.
func (s *Templates) update(ctx context.Context, by Principal, u *updater, template Template) (Update, error) {
	defer s.changesTemplates()()
	err := errStale
	for try := 0; try < maxPlans && errors.Is(err, errStale); try++ {
		if try > 0 {
			if template, err = s.storedTemplate(ctx, template.ID); err != nil {
				return Update{}, err
			}
		}
		if err = u.prepare(ctx, template); err != nil {
			break
		}
		err = s.mutate(ctx, by, func(ctx context.Context, store Store) ([]Event, error) {
			err := store.ChangeTemplate(ctx, template.TemplateKey, u.change)
			return u.events, err
		})
	}
	if errors.Is(err, ErrNotFound) {
		return Update{}, noTemplate()
	} else if err != nil {
		return Update{}, fault("update template", err)
	}
	return u.result, nil
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

// LocalEdits says what [Templates.Update] does with a template that was edited here when its source has changed, too.
type LocalEdits string

// What is done with local edits. force replaces them whatever is chosen.
const (
	// EditsConflict refuses the update, with CodeEdited. It is the default.
	EditsConflict LocalEdits = "conflict"
	// EditsOverwrite replaces them with what the source has. What was edited becomes a version.
	EditsOverwrite LocalEdits = "overwrite"
	// EditsMerge keeps what was changed here alone, and takes what the source has changed alone: texts and lists whole, the objects of a
	// manifest key by key. Where both have changed the same, and not alike, the update is refused, with CodeEdited.
	EditsMerge LocalEdits = "merge"
)

// merge puts together what two have made of a content. conflicts are the fields in which they
// cannot be. Its error is that of ctx, or says that a manifest is not valid JSON.
func merge(ctx context.Context, base, ours, theirs Content) (merged Content, conflicts []string, err error) {
	field := func(name string, clash bool) {
		if clash {
			conflicts = append(conflicts, name)
		}
	}
	var clash bool
	merged.Name, clash = either(base.Name, ours.Name, theirs.Name, func(a, b string) bool { return a == b })
	field("name", clash)
	merged.Description, clash = either(base.Description, ours.Description, theirs.Description, equalText)
	field("description", clash)
	merged.Category, clash = either(base.Category, ours.Category, theirs.Category, equalText)
	field("category", clash)
	merged.Integrations, clash = either(base.Integrations, ours.Integrations, theirs.Integrations, slices.Equal)
	field("integrations", clash)
	merged.Tags, clash = either(base.Tags, ours.Tags, theirs.Tags, slices.Equal)
	field("tags", clash)
	merged.Manifest, clash, err = threeway.Merge(ctx, base.Manifest, ours.Manifest, theirs.Manifest)
	field("manifest", clash)
	return merged.clone(), conflicts, err
}

// either returns what one of two has made of a value, or that both have, and not alike.
func either[V any](base, ours, theirs V, equal func(V, V) bool) (v V, clash bool) {
	switch {
	case equal(base, theirs):
		return ours, false
	case equal(base, ours), equal(ours, theirs):
		return theirs, false
	}
	return ours, true
}
