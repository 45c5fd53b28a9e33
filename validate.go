package svc

import (
	"fmt"
	"strconv"

	"github.com/extsvc/svc/internal/policy"
	"github.com/extsvc/svc/internal/text"
	"github.com/extsvc/svc/internal/token"
)

// Limits on what is accepted. Characters are Unicode code points.
const (
	MaxIDLength = 128 // characters of an id or name, and of a bank, channel, topic or sender
	// MaxNameLength limits a display name in characters, and a template's name in bytes: lists are
	// sorted by it.
	MaxNameLength        = 1024
	MaxDescriptionLength = 4096    // characters of a description
	MaxLabels            = 100     // tags of a template, and integrations of a template
	MaxLabelLength       = 128     // characters of a tag, an integration or a category
	MaxURLLength         = 2048    // characters of a source's address
	MaxSourceTokenLength = 4096    // bytes of a source's access token
	MaxManifest          = 1 << 20 // bytes of a manifest
	MaxNesting           = 64      // levels of arrays and objects in any JSON document
)

// MaxErrors is the most errors that one error joins. When it is reached, one more error follows:
// its Field is "", and it says that there may be more errors.
const MaxErrors = 100

// checker collects what is wrong with a request.
type checker struct {
	errs     []*Error
	full     bool             // errs holds MaxErrors: stop looking for more
	endless  bool             // errs has no limit
	compiler *policy.Compiler // for requests with policies
}

func (c *checker) ok() bool { return len(c.errs) == 0 }

func (c *checker) err() error {
	return joined(c.errs)
}

func (c *checker) add(field, message string) { c.check(Invalid(field, message)) }

// check adds a problem, unless it is nil or the checker is full.
func (c *checker) check(problem *Error) {
	if problem == nil || c.full {
		return
	}
	if c.errs = append(c.errs, problem); len(c.errs) == MaxErrors && !c.endless {
		c.full = true
		c.errs = append(c.errs, Invalid("",
			fmt.Sprintf("there may be more errors: only the first %d are listed", MaxErrors)))
	}
}

// id refuses an id that cannot stand in a path. It also refuses an API key in the wrong place: the
// Service would store the key, or show it, as the name of a thing.
func (c *checker) id(field, id string) {
	if c.lookup(field, id); token.Whole(id) {
		c.add(field, "must not be an API key")
	}
}

// lookup is id for a thing that the Service only reads. It accepts an API key, which finds nothing.
func (c *checker) lookup(field, id string) {
	if problem := text.IDProblem(id, MaxIDLength); problem != "" {
		c.add(field, problem)
	}
}

// foreign is id for a name from another system: a bank, a channel, a topic, a sender. The name may
// contain slashes.
func (c *checker) foreign(field, name string) {
	if c.lookupForeign(field, name); token.Whole(name) {
		c.add(field, "must not be an API key")
	}
}

// lookupForeign is foreign for a thing that the Service only reads.
func (c *checker) lookupForeign(field, name string) {
	if problem := text.NameProblem(name, MaxIDLength); problem != "" {
		c.add(field, problem)
	}
}

func (c *checker) text(field, s string, limit int) {
	if problem := text.Problem(s, limit); problem != "" {
		c.add(field, problem)
	}
}

func (c *checker) optionalText(field string, s *string, limit int) {
	if s != nil {
		c.text(field, *s, limit)
	}
}

func (c *checker) labels(field string, labels []string) {
	if len(labels) > MaxLabels {
		c.add(field, fmt.Sprintf("must have at most %d elements", MaxLabels))
		return
	}
	for i, label := range labels {
		c.text(field+"/"+strconv.Itoa(i), label, MaxLabelLength)
	}
}

// checkID returns an Error about field unless id can stand in a path.
func checkID(field, id string) error {
	if problem := text.IDProblem(id, MaxIDLength); problem != "" {
		return Invalid(field, problem)
	}
	return nil
}

// quote shows a caller's own value in a message.
func quote(s string) string { return strconv.Quote(s) }
