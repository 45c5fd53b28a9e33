package policy

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// The limits of a document that is written. A stored document beyond them stays valid.
const (
	MaxPatterns       = 1000   // action and bank patterns of an access policy
	MaxOverrides      = 1000   // overrides of a bank policy, of both kinds together
	MaxPublicPatterns = 10_000 // action patterns of a bank policy
	MaxListElements   = 1000   // elements of a list parameter
)

// leastLarge is less than the bytes of any document beyond a limit.
const leastLarge = 2 * MaxPatterns

// CheckSize refuses an access policy beyond a limit, as ParseDocument refuses a bad one. It refuses
// no document that does not parse.
func (s *Schema) CheckSize(raw []byte) error {
	if len(raw) < leastLarge {
		return nil
	}
	d, err := s.ParseDocument(raw)
	if err != nil {
		return nil
	}
	left := MaxPatterns
	for i := range d.Statements {
		st, at := &d.Statements[i], "/statements/"+strconv.Itoa(i)
		err := firstError(
			checkCountOf(at+"/actions", &left, len(st.Actions), manyPatterns),
			checkCountOf(at+"/banks", &left, len(st.Banks), manyPatterns),
			s.checkLists(at, st.Parameters),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

var (
	manyPatterns  = fmt.Sprintf("must be one of at most %d action and bank patterns", MaxPatterns)
	manyOverrides = fmt.Sprintf("must be one of at most %d overrides", MaxOverrides)
	manyPublic    = fmt.Sprintf("must be one of at most %d action patterns", MaxPublicPatterns)
)

// checkCountOf refuses the first of n elements for which no room is left.
func checkCountOf(at string, left *int, n int, detail string) error {
	if n > *left {
		return refuse(at+"/"+strconv.Itoa(*left), detail)
	}
	*left -= n
	return nil
}

// checkLists refuses lists that are too long.
func (s *Schema) checkLists(at string, values Parameters) error {
	for i, v := range values {
		length := 0
		switch v := v.(type) {
		case []string:
			length = len(v)
		case []json.RawMessage:
			length = len(v)
		}
		if length > MaxListElements {
			detail := fmt.Sprintf("must have at most %d elements", MaxListElements)
			return refuse(at+"/"+s.list[i].Name, detail)
		}
	}
	return nil
}

// CheckBankSize is CheckSize for a bank policy.
func (s *Schema) CheckBankSize(raw []byte) error {
	if len(raw) < leastLarge {
		return nil
	}
	d, err := s.ParseBankDocument(raw)
	if err != nil {
		return nil
	}
	overrides, patterns := MaxOverrides, MaxPublicPatterns
	err = checkCountOf("/strategy_overrides", &overrides, len(d.StrategyOverrides), manyOverrides)
	if err != nil || d.PublicAccess == nil {
		return err
	}
	const at = "/public_access"
	access := d.PublicAccess
	if access.Default != nil {
		err = firstError(
			checkCountOf(at+"/default/actions", &patterns, len(access.Default.Actions), manyPublic),
			s.checkLists(at+"/default", access.Default.Parameters),
		)
	}
	err = firstError(
		err, checkCountOf(at+"/overrides", &overrides, len(access.Overrides), manyOverrides),
	)
	for i := 0; i < len(access.Overrides) && err == nil; i++ {
		o, at := &access.Overrides[i], at+"/overrides/"+strconv.Itoa(i)
		err = firstError(
			checkCountOf(at+"/actions", &patterns, len(o.Actions), manyPublic),
			s.checkLists(at, o.Parameters),
		)
	}
	return err
}
