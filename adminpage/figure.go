package adminpage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/extsvc/svc"
)

// figure is the way to a decision: who → came by → policy → statement → decision. The page shows it
// as a picture, and as nested lists.
type figure struct {
	Height int
	Nodes  []node
	Edges  []edge
	Ways   []way // the same as lists
	More   int   // the statements left out
}

// node is a box of the picture.
type node struct {
	X, Y, Width int
	Name, Below string // two lines of text, shortened
	Full        string // the first line in full
	State       string
}

// edge is a line from the right side of a box to the left side of another.
type edge struct {
	from, to    int // the numbers of the boxes
	Path, State string
}

// way is how policies came to the principal.
type way struct {
	Name, Below string
	Policies    []policyWay
}

type policyWay struct {
	ID         string
	Statements []statement
}

// Text says in words what a statement does.
func (s statement) Text() string {
	verb := map[svc.Effect]string{svc.EffectAllow: "allow", svc.EffectDeny: "deny"}[s.Effect]
	switch {
	case s.Code == svc.TraceDocumentInvalid:
		return "the document no longer parses"
	case s.Patterns() != "":
		return strings.TrimSpace(verb + " " + s.Patterns())
	case s.Code == svc.TraceActionNotMatched, s.Code == svc.TracePublicActionNotMatched:
		return strings.TrimPrefix(verb+", another action", ", ")
	case s.Code == svc.TraceBankNotMatched:
		return verb + ", another bank"
	case s.Code == svc.TracePublicContextNotMatched:
		return "another context"
	case s.Code == svc.TracePublicLessSpecific:
		return "less specific"
	}
	return verb
}

// The columns of the picture: the left side and the width of their boxes, in pixels.
var columns = [5][2]int{{0, 150}, {199, 170}, {418, 192}, {660, 258}, {968, 118}}

const (
	boxHeight = 42
	rowHeight = 52
	maxDrawn  = 12 // the most statements in a picture
	headRoom  = 30 // for the names of the columns
)

// draw lays the figure out. Where there are too many statements, it leaves out those that do not
// speak of the request first.
func draw(q asked, e *explained) figure {
	drawn := slices.Concat(e.Statements, e.Others)
	f := figure{More: max(0, len(drawn)-maxDrawn)}
	if f.More > 0 {
		drawn = drawn[:maxDrawn]
	}
	f.Ways = ways(drawn)
	who := f.add(0, 0, q.Who, kindOf(e.PrincipalType), "")
	result := f.add(4, 0, e.Word, map[bool]string{true: "allow", false: "forbidden"}[e.Allowed()],
		"result "+effectOf(e.Allowed()))
	row := 0
	for _, w := range f.Ways {
		first, via := row, f.add(1, 0, w.Name, w.Below, "")
		for _, p := range w.Policies {
			from, policy := row, f.add(2, 0, p.ID, "policy", "")
			for _, s := range p.Statements {
				box := f.add(3, center(row, row), "statement "+strings.TrimPrefix(s.Name(), "#"), s.Text(), class(s))
				f.join(policy, box, class(s))
				f.join(box, result, class(s))
				f.raise(policy, s)
				f.raise(via, s)
				row++
			}
			f.Nodes[policy].Y = center(from, row-1)
			f.join(via, policy, f.Nodes[policy].State)
		}
		f.Nodes[via].Y = center(first, row-1)
		f.join(who, via, f.Nodes[via].State)
	}
	middle := center(0, max(row-1, 0))
	f.Nodes[who].Y, f.Nodes[result].Y = middle, middle
	if row == 0 {
		f.join(who, result, stateOff)
	}
	f.Height = headRoom + max(row, 1)*rowHeight
	f.route()
	return f
}

// center returns the top of a box in the middle of rows.
func center(first, last int) int {
	return headRoom + (first+last)*rowHeight/2 + (rowHeight-boxHeight)/2
}

// add adds a box to a column and returns its number.
func (f *figure) add(column, y int, name, below, state string) int {
	at := columns[column]
	f.Nodes = append(f.Nodes, node{
		X: at[0], Y: y, Width: at[1], Full: name, State: state,
		Name: shorten(name, (at[1]-20)/9), Below: shorten(below, (at[1]-20)/8),
	})
	return len(f.Nodes) - 1
}

// raise gives a box the strongest state of the statements behind it.
func (f *figure) raise(box int, s statement) {
	strength := map[string]int{"": 0, stateOff: 1, stateWould: 2, stateDecides: 3}
	have, _, _ := strings.Cut(f.Nodes[box].State, " ")
	if strength[s.State] > strength[have] {
		f.Nodes[box].State = class(s)
	}
}

// join adds a line between two boxes, whose places may not be known yet.
func (f *figure) join(from, to int, state string) {
	f.Edges = append(f.Edges, edge{from: from, to: to, State: state})
}

// route draws the lines as curves, once the boxes have their places.
func (f *figure) route() {
	for i, e := range f.Edges {
		a, b := f.Nodes[e.from], f.Nodes[e.to]
		x1, y1, x2, y2 := a.X+a.Width, a.Y+boxHeight/2, b.X, b.Y+boxHeight/2
		middle := (x1 + x2) / 2
		f.Edges[i].Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, middle, y1, middle, y2, x2, y2)
	}
}

// class returns the classes of a statement: its state and its effect.
func class(s statement) string {
	if s.State == stateOff {
		return stateOff
	}
	return s.State + " " + effectOf(s.Effect != svc.EffectDeny && s.Code != svc.TracePublicActionNotMatched)
}

func effectOf(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

// ways groups statements by how they came to the principal, and by policy.
func ways(all []statement) (list []way) {
	for _, s := range all {
		name, below := cameBy(s.Via)
		i := slices.IndexFunc(list, func(w way) bool { return w.Name == name && w.Below == below })
		if i < 0 {
			i, list = len(list), append(list, way{Name: name, Below: below})
		}
		w := &list[i]
		j := slices.IndexFunc(w.Policies, func(p policyWay) bool { return p.ID == s.PolicyID })
		if j < 0 {
			j, w.Policies = len(w.Policies), append(w.Policies, policyWay{ID: s.PolicyID})
		}
		w.Policies[j].Statements = append(w.Policies[j].Statements, s)
	}
	return list
}

// cameBy returns how a policy came to the principal, in two lines.
func cameBy(via string) (name, below string) {
	kind, id, _ := strings.Cut(via, ":")
	switch kind {
	case "user":
		return "own", "attached directly"
	case "group":
		return id, "group"
	case "scoping":
		return id, "scoping policy of"
	case "public":
		return "public", "access of the bank"
	}
	return via, "policy of the bank"
}

func kindOf(kind svc.Kind) string { return strings.ReplaceAll(string(kind), "_", " ") }

// shorten cuts a text after n columns. Characters of scripts that are written in squares, and
// emoji, take two.
func shorten(text string, n int) string {
	width, cut := 0, 0 // cut: the bytes that leave room for the sign of the cut
	for i, r := range text {
		if width < n {
			cut = i
		}
		if width++; r >= 0x1100 {
			width++
		}
		if width > n {
			return text[:cut] + "…"
		}
	}
	return text
}
