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
	now     time.Time

	result Update
}

func (u *updater) change(t *Template) (write bool, err error) {
	if t.Origin == nil || t.Origin.Source != u.origin.Source || t.Origin.ID != u.origin.ID {
		return false, ErrChanged
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
	if !u.force && editedHere {
		return false, editedLocally(differences(t.Content, t.Origin.Base))
	}
	t.put(u.content)
	t.originate(u.origin)
	t.UpdatedAt = u.now
	u.result.Updated, u.result.NewRevision, u.result.Template = true, u.origin.Revision, *t
	return true, nil
}

func editedLocally(fields []string) *Error {
	return &Error{
		Code:    CodeEdited,
		Message: "the source has changed, and so was this template here (" + strings.Join(fields, ", ") + "): update with force to replace it",
		Fields:  slices.Clone(fields),
	}
}
