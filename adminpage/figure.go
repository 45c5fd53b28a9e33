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
	Heads  []heading
	Height int
	Nodes  []node
	Edges  []edge
	Ways   []*way // the same as lists
	More   int    // the statements left out

	columns []column
}

// heading is the name of a column.
type heading struct {
	X    int
	Name string
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
	limits      bool // the policies only limit what others allow
	Policies    []policyWay
}

type policyWay struct {
	ID         string
	Statements []statement
}

// Text says in words what a statement does.
func (s statement) Text() string {
	switch verb := string(s.Effect); {
	case s.Code == svc.TraceDocumentInvalid:
		return "no longer parses"
	case s.Patterns() != "":
		return verb + " " + s.Patterns()
	case s.Code == svc.TraceActionNotMatched:
		return verb + ": does not match this action"
	case s.Code == svc.TraceBankNotMatched:
		return verb + ": does not match this bank"
	case s.Code == svc.TracePublicActionNotMatched:
		return "does not list this action"
	case s.Code == svc.TracePublicContextNotMatched:
		return "for other senders"
	case s.Code == svc.TracePublicLessSpecific:
		return "an override replaces it"
	default:
		return verb
	}
}

// column is a column of the picture: its name, and the left side and width of its boxes in pixels.
type column struct {
	name     string
	x, width int
}

// The columns for a user, and for a principal whose rights are those of another person. The name of
// its kind is the heading of the second column then.
var (
	columns = []column{
		{"Who", 0, 150}, {"Through", 199, 170}, {"Policy", 418, 192}, {"Statement", 660, 258},
		{"Decision", 968, 118},
	}
	personal = column{"", 166, 120}
	narrow   = []column{
		{"Who", 0, 140}, {"Through", 312, 140}, {"Policy", 484, 166}, {"Statement", 682, 256},
		{"Decision", 968, 118},
	}
)

const (
	boxHeight = 42
	rowHeight = 52
	maxDrawn  = 12 // the most statements in a picture
	headRoom  = 30 // for the names of the columns
)

// draw lays the figure out. Where there are too many statements, it leaves out those that do not
// speak of the request first.
func draw(q asked, e *explained, why cause) figure {
	drawn := slices.Concat(e.Statements, e.Others)
	f := figure{More: max(0, len(drawn)-maxDrawn), columns: columns}
	if e.Person.ID != "" {
		f.columns = narrow
	}
	if f.More > 0 {
		drawn = drawn[:maxDrawn]
	}
	f.Ways = ways(drawn)
	who := f.add(0, 0, q.Who, strings.ReplaceAll(q.Kind, "_", " "), "")
	person := who
	if e.Person.ID != "" {
		c, kind := personal, e.Person.Kind
		c.name = strings.ToUpper(kind[:1]) + kind[1:]
		f.Heads = append(f.Heads, heading{c.x, c.name})
		person = f.addTo(c, center(0, 0), e.Person.ID, kind, "")
	}
	for _, c := range f.columns {
		f.Heads = append(f.Heads, heading{c.x, c.name})
	}
	result := f.add(4, 0, e.Word, why.kind, "result "+effectOf(e.Allowed()))
	row := 0
	for _, w := range f.Ways {
		first, via := row, f.add(1, 0, w.Name, w.Below, "")
		for _, p := range w.Policies {
			from, policy := row, f.add(2, 0, p.ID, "policy", "")
			for _, s := range p.Statements {
				box := f.add(3, center(row, row), s.Title(), s.Text(), s.Class())
				f.join(policy, box, s.Class())
				f.join(box, result, s.Class())
				f.raise(policy, s)
				f.raise(via, s)
				row++
			}
			f.Nodes[policy].Y = center(from, row-1)
			f.join(via, policy, f.Nodes[policy].State)
		}
		f.Nodes[via].Y = center(first, row-1)
		from := person
		if w.limits {
			from = who
		} else {
			f.Nodes[person].Y = center(0, row-1)
		}
		f.join(from, via, f.Nodes[via].State)
	}
	middle := center(0, max(row-1, 0))
	f.Nodes[who].Y, f.Nodes[result].Y = middle, middle
	if person != who {
		f.join(who, person, "")
	}
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
	return f.addTo(f.columns[column], y, name, below, state)
}

func (f *figure) addTo(c column, y int, name, below, state string) int {
	f.Nodes = append(f.Nodes, node{
		X: c.x, Y: y, Width: c.width, Full: name, State: state,
		Name: shorten(name, (c.width-20)/9), Below: shorten(below, (c.width-20)*4/29),
	})
	return len(f.Nodes) - 1
}

// raise gives a box the strongest state of the statements behind it.
func (f *figure) raise(box int, s statement) {
	weakest := []string{"", stateOff, stateWould, stateDecides}
	have, _, _ := strings.Cut(f.Nodes[box].State, " ")
	if slices.Index(weakest, s.State) > slices.Index(weakest, have) {
		f.Nodes[box].State = s.Class()
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
		f.Edges[i].Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d",
			x1, y1, middle, y1, middle, y2, x2, y2)
	}
}

func effectOf(allow bool) string {
	if allow {
		return "allow"
	}
	return "deny"
}

// ways groups statements by how they came to the principal, and by policy. Those that only limit
// what others allow come last.
func ways(all []statement) (list []*way) {
	for _, s := range all {
		name, below := through(s.TraceEntry)
		i := slices.IndexFunc(list, func(w *way) bool { return w.Name == name && w.Below == below })
		if i < 0 {
			i = len(list)
			list = append(list, &way{Name: name, Below: below, limits: limits(s.TraceEntry)})
		}
		w := list[i]
		j := slices.IndexFunc(w.Policies, func(p policyWay) bool { return p.ID == s.PolicyID })
		if j < 0 {
			j, w.Policies = len(w.Policies), append(w.Policies, policyWay{ID: s.PolicyID})
		}
		w.Policies[j].Statements = append(w.Policies[j].Statements, s)
	}
	slices.SortStableFunc(list, func(a, b *way) int {
		switch {
		case a.limits == b.limits:
			return 0
		case a.limits:
			return 1
		}
		return -1
	})
	return list
}

// through returns how a policy came to the principal, in two lines.
func through(entry svc.TraceEntry) (name, below string) {
	kind, id, _ := strings.Cut(entry.Via, ":")
	switch kind {
	case "user":
		return "directly", "attached to the user"
	case "group":
		return id, "group"
	case "scoping":
		return entry.PolicyID, "limited by"
	case "public":
		return "public", "access of the bank"
	}
	return entry.Via, "policy of the bank"
}

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
