package policy

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/extsvc/svc/internal/strictjson"
)

// maxDepth limits the nesting of a document. Only lists of objects have a free shape.
const maxDepth = 64

// Effect is a statement's effect on the requests that it matches.
type Effect string

// The effects.
const (
	EffectAllow Effect = "allow"
	EffectDeny  Effect = "deny"
)

// Document is a parsed, valid access policy.
type Document struct {
	Statements []Statement
}

// Statement applies its effect to the actions and banks it names.
type Statement struct {
	Effect     Effect
	Actions    []string   // patterns, at least one
	Banks      []string   // patterns, at least one
	Parameters Parameters // nil on a deny

	written []string // Banks before variables got their values; nil: as Banks
}

// CoversAction reports whether an action pattern of the statement covers an action.
func (s *Statement) CoversAction(action string) bool { return covers(s.Actions, action) }

// ParseDocument parses an access policy. It refuses everything that the rules do not allow, with a
// *strictjson.Error whose pointer is relative to the document. A null key counts as absent. version
// and statements are required; statements may be empty.
func (s *Schema) ParseDocument(raw []byte) (*Document, error) {
	d := reflect.New(s.document)
	if err := strictjson.Unmarshal(raw, maxDepth, d.Interface()); err != nil {
		return nil, err
	}
	version, _ := d.Elem().Field(0).Interface().(*string)
	if err := checkVersion(version); err != nil {
		return nil, err
	}
	written := d.Elem().Field(1)
	if written.IsNil() {
		return nil, refuse("/statements", "is required")
	}
	out := &Document{Statements: make([]Statement, written.Len())}
	for i := range out.Statements {
		out.Statements[i] = s.readStatement(written.Index(i))
		if err := s.checkStatement(&out.Statements[i]); err != nil {
			return nil, under("/statements/"+strconv.Itoa(i), err)
		}
	}
	return out, nil
}

// readStatement returns the statement of a struct of type s.statement.
func (s *Schema) readStatement(from reflect.Value) Statement {
	return Statement{
		Effect:     Effect(from.Field(0).String()),
		Actions:    *from.Field(1).Addr().Interface().(*[]string), // without an allocation
		Banks:      *from.Field(2).Addr().Interface().(*[]string),
		Parameters: s.read(from),
	}
}

func (s *Schema) checkStatement(st *Statement) error {
	return firstError(
		checkForm(st.Effect, st.Actions, st.Banks, s.firstSet(st.Parameters)),
		s.check(st.Parameters),
	)
}

// checkForm checks all of a statement but its parameters. set is the first that is set, or "".
func checkForm(effect Effect, actions, banks []string, set string) error {
	if err := checkEffect(effect, set); err != nil {
		return err
	}
	return firstError(
		checkSome("/actions", actions),
		checkPatterns("/actions", actions, validAction),
		checkSome("/banks", banks),
		checkPatterns("/banks", banks, validBank),
	)
}

func checkEffect(effect Effect, set string) error {
	switch {
	case effect == "":
		return refuse("/effect", "is required")
	case effect != EffectAllow && effect != EffectDeny:
		return refuse("/effect", "must be allow or deny")
	case effect == EffectDeny && set != "":
		return refuse("/"+set, "is not allowed in a deny")
	}
	return nil
}

func checkVersion(v *string) error {
	switch {
	case v == nil:
		return refuse("/version", "is required")
	case *v != Version:
		return refuse("/version", fmt.Sprintf("must be %q", Version))
	}
	return nil
}

func checkSome(at string, patterns []string) error {
	if len(patterns) == 0 {
		return refuse(at, "must name at least one")
	}
	return nil
}

func checkPatterns(at string, patterns []string, valid func(string) error) error {
	for i, p := range patterns {
		if err := valid(p); err != nil {
			return refuse(fmt.Sprintf("%s/%d", at, i), err.Error())
		}
	}
	return nil
}
