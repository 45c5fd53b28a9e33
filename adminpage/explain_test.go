package adminpage_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/extsvc/svc"
)

// clinic has a principal for each kind of answer.
func clinic() svc.Bundle {
	to := func(policy, user string) svc.Attachment {
		return svc.Attachment{PolicyID: policy, Principal: svc.GrantedTo{Type: "user", ID: user}}
	}
	return svc.Bundle{
		Users: []svc.User{
			{ID: "vera", Channels: []svc.Channel{{Provider: "telegram", SenderID: "1"}}}, {ID: "away", Inactive: true}, {ID: "bob"}, {ID: "novice"},
		},
		ServiceAccounts: []svc.ServiceAccount{
			{ID: "bot", OwnerUserID: "vera"}, {ID: "limited", OwnerUserID: "vera", ScopingPolicyID: "recalls"},
			{ID: "shut", OwnerUserID: "vera", ScopingPolicyID: "empty"}, {ID: "resting", OwnerUserID: "vera", Inactive: true},
			{ID: "orphan", OwnerUserID: "away"}, {ID: "tied", OwnerUserID: "novice", ScopingPolicyID: "recalls"},
		},
		Policies: []svc.Policy{
			{ID: "works", Document: document(`{"effect":"allow","actions":["bank:recall","bank:retain"],"banks":["support"]},{"effect":"allow","actions":["bank:recall"],"banks":["drafts"]}`)},
			{ID: "recalls", Document: document(`{"effect":"allow","actions":["bank:recall"],"banks":["*"]}`)},
			{ID: "never", Document: document(`{"effect":"deny","actions":["bank:recall"],"banks":["support"]}`)},
			{ID: "empty", Document: document(``)},
		},
		Attachments: []svc.Attachment{to("works", "vera"), to("works", "away"), to("works", "bob"), to("never", "bob")},
		BankPolicies: []svc.BankPolicy{{BankID: "support", Document: json.RawMessage(`{"version":"2026-03-24","default_strategy":"balanced",
			"public_access":{"default":{"actions":["bank:recall"],"recall_budget":"low"},"overrides":[{"scope":"topic","value":"billing","actions":[]}]}}`)}},
	}
}

// What the page says of a decision agrees in all its parts, for each kind of answer: the verdict, the
// picture, the lists, the tables and the advice.
func TestWhyTellsTheTruth(t *testing.T) {
	s := newSite(t, clinic()).signIn()
	for line := range strings.Lines(string(must(os.ReadFile("testdata/why.txt")))) {
		query, answer, is := strings.Cut(strings.TrimSuffix(line, "\n"), " -> ")
		if !is || line[0] == '#' {
			continue
		}
		want := append(strings.Split(answer, " | "), "", "", "")
		result, advised := want[0], want[1]
		parts := func(of string) []string {
			return slices.DeleteFunc(strings.Split(of, "; "), func(s string) bool { return s == "" })
		}
		decided, boxes := parts(want[2]), parts(want[3])
		a := s.get("why?"+query).is(t, 200)
		good := strings.HasPrefix(result, "by ")
		verdict := map[bool]string{true: `class="verdict yes"`, false: `class="verdict no"`}[good]
		if !strings.Contains(a.body, verdict) || strings.Contains(a.body, `"decides `+map[bool]string{true: "deny", false: "allow"}[good]) {
			t.Errorf("%s: the colours are not those of the answer: %s", query, a.body)
		}
		for _, box := range append(boxes, result) {
			if !strings.Contains(a.body, `">`+box+`</text>`) {
				t.Errorf("%s: no %q in the picture: %s", query, box, a.body)
			}
		}
		if strings.Contains(a.body, ">Owner<") != slices.Contains(boxes, "Owner") {
			t.Errorf("%s: an owner that nobody has", query)
		}
		if got := a.decided(); !slices.Equal(got, decided) || strings.Count(a.body, "– decided this") != len(decided) {
			t.Errorf("%s: %q decided this, want %q: %s", query, got, decided, a.body)
		}
		_, reason, _ := strings.Cut(a.body, `<h2 id="verdict">`)
		_, reason, _ = strings.Cut(reason, "</p>\n<p>")
		if advice, _, _ := strings.Cut(reason, "As of revision"); !strings.Contains(advice, advised) || (advice == "") != (advised == "") {
			t.Errorf("%s: it advises %q", query, advice)
		}
	}
	s.get("why?sender=telegram:9&action=bank:recall&bank=support").is(t, 200, "for other senders", "", "an override replaces it")
	s.get("why?sender=telegram:9&action=bank:recall&bank=support&topic=billing").is(t, 200, "an override replaces it", "", "for other senders")
	s.get("why?sender=telegram:9&action=bank:recall&bank=support").is(t, 200, "public default of support", "effective_strategy", "default of support", "", "#-1")
}

// The picture has its lines and boxes in their places.
func TestPicture(t *testing.T) {
	places := regexp.MustCompile(`(?:viewBox| d)="([^"]+)"|<rect x="(\d+)" y="(\d+)" width`)
	s := newSite(t, clinic()).signIn()
	for query, want := range map[string]string{
		"user_id=nobody": "0 0 1086 82;M150 56C559 56 559 56 968 56;0 35;968 35;",
		"sa_id=limited": "0 0 1086 186;M650 82C666 82 666 56 682 56;M938 56C953 56 953 108 968 108;M650 82C666 82 666 108 682 108;" +
			"M938 108C953 108 953 108 968 108;M452 82C468 82 468 82 484 82;M286 82C299 82 299 82 312 82;M650 160C666 160 666 160 682 160;" +
			"M938 160C953 160 953 108 968 108;M452 160C468 160 468 160 484 160;M140 108C226 108 226 160 312 160;" +
			"M140 108C153 108 153 82 166 82;0 87;166 61;968 87;312 61;484 61;682 35;682 87;312 139;484 139;682 139;",
	} {
		got := ""
		for _, m := range places.FindAllStringSubmatch(s.get("why?action=bank:recall&bank=support&"+query).body, -1) {
			got += strings.Trim(strings.Join(m[1:], " "), " ") + ";"
		}
		if got != want {
			t.Errorf("%s: %s", query, got)
		}
	}
}

var rows = regexp.MustCompile(`(?s)<tr class="decides (?:allow|deny)"><th scope="row">(?:<a [^>]*>)?([^<]*)(?:</a>)?</th>.*?<span class="tag[^"]*">([^<]*)</span>([^<]*)</td>`)

func (a answer) decided() (all []string) {
	for _, row := range rows.FindAllStringSubmatch(a.body, -1) {
		all = append(all, strings.TrimSpace(row[1]+" "+row[2]+row[3]))
	}
	return all
}

// questions are all that can be asked of the clinic: who, limited by the policy of a key or not, does what, where.
func questions() (all []url.Values) {
	for _, who := range []string{
		"user_id=vera", "user_id=away", "user_id=bob", "user_id=admin", "user_id=novice", "user_id=nobody", "sa_id=bot", "sa_id=limited",
		"sa_id=shut", "sa_id=resting", "sa_id=orphan", "sa_id=tied", "sa_id=none", "sender=telegram:1", "sender=telegram:9",
	} {
		more, values := "scoping_policy_id", []string{"", "recalls", "empty", "never", "lost"}
		if strings.HasPrefix(who, "sender") {
			more, values = "topic", []string{"", "billing"}
		}
		for _, value := range values {
			for _, action := range []string{"bank:recall", "bank:retain", "bank:forget"} {
				for _, bank := range []string{"support", "drafts", "other"} {
					all = append(all, must(url.ParseQuery(who+"&action="+action+"&bank="+bank+"&"+more+"="+value)))
				}
			}
		}
	}
	return all
}

// Every part of the page agrees with the trace of the decision, whatever is asked.
func TestWhyAgreesWithTheTrace(t *testing.T) {
	s := newSite(t, clinic()).signIn()
	seen := map[string]bool{}
	for _, q := range questions() {
		r := must(s.service.Policies.Resolve(t.Context(), svc.Host, svc.Question{
			UserID: q.Get("user_id"), ServiceAccountID: q.Get("sa_id"), Sender: q.Get("sender"),
			Action: q.Get("action"), Bank: q.Get("bank"), Topic: q.Get("topic"), ScopingPolicyID: q.Get("scoping_policy_id"),
		}))
		a := s.get("why?"+q.Encode()).is(t, 200)
		said, told := a.says(), truth(r)
		for _, part := range slices.Sorted(maps.Keys(told)) {
			if !slices.Equal(said[part], told[part]) {
				t.Errorf("%s: %s\n%s of the page: %q\nwant: %q", q.Encode(), r.Reason, part, said[part], told[part])
			}
		}
		if problem := wrongAdvice(r, said["advice"][0]); problem != "" {
			t.Errorf("%s: %s\nadvice %q %s", q.Encode(), r.Reason, said["advice"][0], problem)
		}
		seen[said["kind"][0]] = true
	}
	kinds := []string{"by policy", "by public", "closed", "forbidden", "inactive", "narrowed", "not allowed", "not public", "unknown"}
	if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, kinds) {
		t.Errorf("the questions lead to %q, want %q", got, kinds)
	}
}

var (
	verdictTag = regexp.MustCompile(`<section class="verdict (yes|no)" aria-labelledby="verdict">\n<h2 id="verdict">(\w+)</h2>`)
	adviceText = regexp.MustCompile(`(?s)<h2 id="verdict">.*?</p>\n<p>(.*?)As of revision`)
	tableRow   = regexp.MustCompile(`(?s)<tr class="(decides allow|decides deny|would allow|off)"><th scope="row">(?:<a [^>]*>)?([^<]*).*?</tr>`)
	boxTag     = regexp.MustCompile(`<g class="([^"]*)"><title>([^<]*)</title><rect x="(\d+)"[^>]*/><text[^>]*>[^<]*</text><text[^>]*>([^<]*)</text>`)
	lineTag    = regexp.MustCompile(`<path class="([^"]*)" d="M\d+ \d+C[\d ]* 968 \d+"`)
	listItem   = regexp.MustCompile(`<li class="([^"]*)">[^<–]*(<b>– decided this</b>|– would have allowed it)?</li>`)
	ownerItem  = regexp.MustCompile(`<li>owner <b>([^<]*)</b></li>`)
)

// says reads the parts of an answer. Each has the states of all statements, in their order.
func (a answer) says() map[string][]string {
	parts := map[string][]string{"verdict": verdictTag.FindStringSubmatch(a.body)[1:], "advice": {""}}
	if advice := adviceText.FindStringSubmatch(a.body); advice != nil {
		parts["advice"][0] = strings.ReplaceAll(strings.TrimSpace(advice[1]), "&#34;", `"`)
	}
	for _, row := range tableRow.FindAllStringSubmatch(a.body, -1) {
		parts["table"] = append(parts["table"], row[2]+" "+row[1])
		if strings.Contains(row[0], "decided this") != strings.HasPrefix(row[1], "decides") {
			parts["table"] = append(parts["table"], "a row whose words are not its colour")
		}
	}
	for _, box := range boxTag.FindAllStringSubmatch(a.body, -1) {
		switch state, name, x, below := box[1], box[2], box[3], box[4]; x {
		case "660", "682":
			parts["boxes"] = append(parts["boxes"], state)
		case "968":
			parts["result"], parts["kind"] = []string{state, name}, []string{below}
		case "166":
			parts[below] = append(parts[below], name)
		}
	}
	for _, line := range lineTag.FindAllStringSubmatch(a.body, -1) {
		parts["lines"] = append(parts["lines"], line[1])
	}
	for _, item := range listItem.FindAllStringSubmatch(a.body, -1) {
		parts["list"] = append(parts["list"], item[1]+" "+item[2])
	}
	if owner := ownerItem.FindStringSubmatch(a.body); owner != nil {
		parts["owner in the list"] = owner[1:]
	}
	if strings.Contains(a.body, "effective_strategy") {
		parts["strategy"] = []string{"shown"}
	}
	slices.Sort(parts["list"])
	slices.Sort(parts["boxes"])
	slices.Sort(parts["lines"])
	return parts
}

// truth returns what says must return for a decision.
func truth(r svc.Resolution) map[string][]string {
	allowed := r.Outcome == svc.Allow
	parts := map[string][]string{
		"verdict": {"no", "Denied"}, "result": {"result deny", "Denied"}, "boxes": nil, "owner": nil, "strategy": nil,
	}
	if allowed {
		parts["verdict"], parts["result"] = []string{"yes", "Allowed"}, []string{"result allow", "Allowed"}
	}
	words := map[string]string{"decides allow": "<b>– decided this</b>", "decides deny": "<b>– decided this</b>", "would allow": "– would have allowed it"}
	var apply, others []string
	for _, e := range r.Trace {
		if e.Via == "bank" { // the strategy: it is among the parameters
			continue
		}
		state := stateOf(r, e)
		if row := e.PolicyID + " " + state; state == "off" {
			others = append(others, row)
		} else {
			apply = append(apply, row)
		}
		parts["boxes"] = append(parts["boxes"], state)
		parts["list"] = append(parts["list"], state+" "+words[state])
	}
	parts["table"] = slices.Concat(apply, others)
	slices.Sort(parts["boxes"])
	slices.Sort(parts["list"])
	parts["lines"] = parts["boxes"] // one from each statement
	if parts["boxes"] == nil {
		parts["lines"] = []string{"off"} // from the principal
	}
	if r.PrincipalType == svc.KindServiceAccount && r.ResolvedUserID != nil {
		parts["owner"] = []string{*r.ResolvedUserID}
		parts["owner in the list"] = parts["owner"]
	}
	if r.EffectiveStrategy != nil {
		parts["strategy"] = []string{"shown"}
	}
	return parts
}

// stateOf returns what an entry of the trace did.
func stateOf(r svc.Resolution, e svc.TraceEntry) string {
	limits := strings.HasPrefix(e.Via, "scoping:")
	allowsIt := func(of svc.TraceEntry) bool {
		return of.PolicyID == e.PolicyID && of.Via == e.Via && of.Code == svc.TraceAllowOverridden
	}
	switch {
	case e.Code == svc.TraceAllowMatched, e.Code == svc.TracePublicAllowed:
		return "decides allow"
	case e.Code == svc.TraceAllowOverridden:
		return "would allow"
	case e.Code == svc.TraceDenyMatched && r.Outcome == svc.ExplicitDeny, e.Code == svc.TracePublicActionNotMatched,
		limits && narrows(r) && !slices.ContainsFunc(r.Trace, allowsIt):
		return "decides deny"
	}
	return "off"
}

// narrows reports whether a policy that limits the principal denies a request by silence.
func narrows(r svc.Resolution) bool {
	return strings.HasPrefix(r.Reason, "denied: scoping policy ") && strings.Contains(r.Reason, " does not allow ")
}

// wrongAdvice says what is wrong with the advice under a verdict; "": nothing.
func wrongAdvice(r svc.Resolution, advice string) string {
	closed := !strings.HasPrefix(r.Reason, "denied")
	switch {
	case r.Outcome == svc.Allow || closed:
		return unless(advice == "", "helps nobody")
	case r.Outcome == svc.ExplicitDeny:
		return unless(strings.Contains(advice, "explicit deny"), "does not say that a deny wins")
	case narrows(r):
		for _, e := range r.Trace {
			if named := fmt.Sprintf("%q", e.PolicyID); stateOf(r, e) == "decides deny" && !strings.Contains(advice, named) {
				return "does not name " + named
			}
		}
		return unless(strings.Contains(advice, "must allow this, too"), "does not say what limits it")
	case r.PrincipalType == svc.KindUnmapped:
		replaced := strings.Contains(r.Reason, "override")
		return unless(strings.Contains(advice, "replaces the default, which allows") == (replaced && strings.Contains(r.Reason, "recall")),
			"is not about the override in force")
	}
	return wrongNearest(r, advice)
}

// wrongNearest says what is wrong with the advice for want of a policy.
func wrongNearest(r svc.Resolution, advice string) string {
	statement, id, code := 0, "", svc.TraceActionNotMatched
	_, err := fmt.Sscanf(advice, "Nearest: statement %d of policy %q", &statement, &id)
	if strings.Contains(advice, "on other banks") {
		code = svc.TraceBankNotMatched
	}
	near := func(e svc.TraceEntry) bool {
		return e.Effect == svc.EffectAllow && !strings.HasPrefix(e.Via, "scoping:")
	}
	if err != nil {
		return unless(!slices.ContainsFunc(r.Trace, near), "names no statement")
	}
	return unless(slices.ContainsFunc(r.Trace, func(e svc.TraceEntry) bool {
		return near(e) && e.PolicyID == id && e.Statement == statement && e.Code == code
	}), "says what the statement does not do")
}

func unless(right bool, problem string) string {
	if right {
		return ""
	}
	return problem
}
