package svc

import (
	"slices"
	"strings"
	"time"
)

// updater decides, inside the store's transaction, what an update does to a template as it is now: the one that was read
// before the source was asked may have been patched, updated or replaced since.
type updater struct {
	content Content // what the source has
	origin  Origin  // where that comes from
	force   bool
	ifMatch []string
	edits   LocalEdits
	check   func(Content) error // of what a merge comes to
	now     time.Time

	result Update
}

func (u *updater) change(t *Template) (write bool, err error) {
	if t.Origin == nil || t.Origin.Source != u.origin.Source || t.Origin.ID != u.origin.ID || t.Origin.URL != u.origin.URL {
		return false, ErrChanged
	}
	if err := t.matches(u.ifMatch); err != nil {
		return false, err
	}
	u.result = Update{PreviousRevision: t.Origin.Revision, NewRevision: t.Origin.Revision, Template: *t}
	own, err := t.Content.Revision()
	if err != nil {
		return false, err
	}
	upstreamChanged := u.origin.Revision != t.Origin.Revision
	editedHere := own != t.Origin.Revision && own != u.origin.Revision
	if !u.force && !upstreamChanged {
		return false, nil
	}
	content := u.content
	if !u.force && editedHere {
		if content, err = u.reconcile(t); err != nil {
			return false, err
		}
	}
	t.put(content)
	t.originate(u.origin, u.content)
	t.touch(u.now)
	u.result.Updated, u.result.NewRevision, u.result.Template = true, u.origin.Revision, *t
	return true, nil
}

// reconcile returns what a template becomes that was edited here and whose source has changed.
func (u *updater) reconcile(t *Template) (Content, error) {
	switch u.edits {
	case EditsOverwrite:
		return u.content, nil
	case EditsMerge:
		merged, conflicts := merge(t.Origin.Base, t.Content, u.content)
		if conflicts != nil {
			return Content{}, editedLocally(conflicts)
		}
		if err := u.check(merged); err != nil {
			return Content{}, &Error{
				Code: CodeEdited, Message: "the source has changed, and so was this template here, and what both come to is bad: " +
					firstMessage(err), Fields: differences(t.Content, t.Origin.Base), Err: err,
			}
		}
		return merged, nil
	}
	return Content{}, editedLocally(differences(t.Content, t.Origin.Base))
}

func editedLocally(fields []string) *Error {
	return &Error{
		Code:    CodeEdited,
		Message: "the source has changed, and so was this template here (" + strings.Join(fields, ", ") + "): update with force to replace it",
		Fields:  slices.Clone(fields),
	}
}
