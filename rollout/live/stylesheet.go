package live

import (
	"bytes"
	"slices"
	"strings"

	"github.com/tdewolff/parse/v2"
	"github.com/tdewolff/parse/v2/css"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// Bounds of the style sheets of a page that are read: of further rules nothing is
// known. They bound the work as well, which grows with elements times the rules that
// one element's names are in.
const (
	maxSheet = 1 << 20 // bytes, of all sheets of a page
	maxRules = 5_000
	maxSteps = 8 // names of one selector
)

// compound is what one element must be: a kind, an id, classes.
type compound struct {
	kind, id string
	classes  []string
}

func (c *compound) fits(n *html.Node) bool {
	if c.kind != "" && !strings.EqualFold(c.kind, n.Data) || c.id != "" && attribute(n, "id") != c.id {
		return false
	}
	if len(c.classes) == 0 {
		return true
	}
	has := strings.Fields(attribute(n, "class"))
	for _, want := range c.classes {
		if !slices.Contains(has, want) {
			return false
		}
	}
	return true
}

// selector is a chain of ancestors and, last, the element itself.
type selector []compound

func (s selector) fits(n *html.Node) bool {
	last := len(s) - 1
	if !s[last].fits(n) {
		return false
	}
	for p, i := n.Parent, last-1; i >= 0; p = p.Parent { // the nearest that fits is as good as any
		if p == nil || p.Type != html.ElementNode {
			return false
		}
		if s[i].fits(p) {
			i--
		}
	}
	return true
}

// weight orders selectors: ids, then classes, then kinds.
func (s selector) weight() (w int) {
	for _, c := range s {
		if c.id != "" {
			w += 1 << 20
		}
		w += len(c.classes) << 10
		if c.kind != "" {
			w++
		}
	}
	return w
}

// rule says, for one selector and one property, whether an element is hidden by it.
type rule struct {
	selector
	property  string
	hides     bool
	important bool
	order     int
}

func (r *rule) over(o *rule) bool {
	if r.important != o.important {
		return r.important
	}
	if a, b := r.weight(), o.weight(); a != b {
		return a > b
	}
	return r.order >= o.order
}

// sheet is the rules of a page's own style sheets that bear on what is seen, by a
// name that an element must have for them: "#id", ".class", or its kind.
type sheet struct {
	rules map[string][]*rule
	n     int
	hides bool // one of them does
}

// sheetOf reads the style elements of a page. Of selectors it knows kinds, ids and
// classes and their descendants; a rule with another one, or for other media than
// a screen, is passed over. What has more rules than one can hope to weigh is
// not read to its end.
func sheetOf(doc *html.Node) *sheet {
	s := &sheet{rules: map[string][]*rule{}}
	left := maxSheet
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode || n.DataAtom != atom.Style || !onScreen(attribute(n, "media")) {
			continue
		}
		for c := n.FirstChild; c != nil; c = c.NextSibling {
			if c.Type == html.TextNode && len(c.Data) <= left {
				left -= len(c.Data)
				s.read(c.Data)
			}
		}
	}
	return s
}

// onScreen says whether rules for these media hold for who reads on a large screen.
func onScreen(media string) bool {
	switch strings.ToLower(strings.Join(strings.Fields(media), " ")) {
	case "", "all", "screen", "only screen":
		return true
	}
	return false
}

func (s *sheet) read(text string) {
	p := css.NewParser(parse.NewInputString(text), false)
	var selectors []selector
	var block []declaration
	skipped := 0 // depth of at-rules that do not hold
	for range 2*len(text) + 2 {
		kind, _, data := p.Next()
		switch kind {
		case css.ErrorGrammar:
			if !p.HasParseError() {
				return // the end
			}
		case css.BeginAtRuleGrammar:
			if skipped > 0 || !(bytes.EqualFold(data, []byte("@media")) && onScreen(joined(p.Values())) || bytes.EqualFold(data, []byte("@layer"))) {
				skipped++
			}
		case css.EndAtRuleGrammar:
			skipped = max(0, skipped-1)
		case css.BeginRulesetGrammar:
			selectors, block = selectorsOf(joined(p.Values())), nil
		case css.DeclarationGrammar:
			if skipped == 0 && len(selectors) > 0 {
				block = append(block, declaration{strings.ToLower(string(data)), strings.ToLower(joined(p.Values()))})
			}
		case css.EndRulesetGrammar:
			s.add(selectors, block)
			selectors, block = nil, nil
		}
	}
}

func joined(tokens []css.Token) string {
	var b strings.Builder
	for _, t := range tokens {
		b.Write(t.Data)
	}
	return b.String()
}

type declaration struct{ property, value string }

// bearing are the properties that can make an element unseen.
var bearing = map[string]bool{"display": true, "visibility": true, "opacity": true, "font-size": true, "text-indent": true, "left": true, "top": true, "right": true,
	"bottom": true, "margin-left": true, "margin-top": true, "color": true, "clip": true, "clip-path": true, "transform": true}

// cut is the name of what a width or height of nothing and a cut-off do together.
const cut = "cut off"

func (s *sheet) add(selectors []selector, block []declaration) {
	var rules []rule
	var small, clipped bool
	for _, d := range block {
		value, important := strings.CutSuffix(strings.ReplaceAll(d.value, " ", ""), "!important")
		said := d.property + ":" + value
		if bearing[d.property] {
			rules = append(rules, rule{property: d.property, hides: unseen.MatchString(said), important: important})
		}
		small, clipped = small || shrunk.MatchString(said), clipped || cutOff.MatchString(said)
	}
	if small && clipped {
		rules = append(rules, rule{property: cut, hides: true})
	}
	for _, sel := range selectors {
		last := sel[len(sel)-1]
		name := strings.ToLower(last.kind)
		if last.id != "" {
			name = "#" + last.id
		} else if len(last.classes) > 0 {
			name = "." + last.classes[0]
		}
		for _, r := range rules {
			if s.n >= maxRules {
				return
			}
			r.selector, r.order = sel, s.n
			s.n++
			s.hides = s.hides || r.hides
			s.rules[name] = append(s.rules[name], &r)
		}
	}
}

// selectorsOf reads a list of selectors; those that it does not know are left out.
func selectorsOf(text string) (out []selector) {
	for part := range strings.SplitSeq(text, ",") {
		var s selector
		for step := range strings.FieldsSeq(part) {
			c, ok := compoundOf(step)
			if !ok || len(s) >= maxSteps {
				s = nil
				break
			}
			s = append(s, c)
		}
		if len(s) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func compoundOf(step string) (c compound, ok bool) {
	if step == "*" {
		return c, true
	}
	for len(step) > 0 {
		mark := step[0]
		if mark == '.' || mark == '#' {
			step = step[1:]
		} else if c.id != "" || len(c.classes) > 0 || c.kind != "" {
			return c, false
		}
		n := strings.IndexFunc(step, func(r rune) bool {
			return !(r == '-' || r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 0x80)
		})
		if n < 0 {
			n = len(step)
		}
		if n == 0 {
			return c, false // a pseudo-class, an attribute, a combinator, an escape
		}
		switch name := step[:n]; mark {
		case '.':
			c.classes = append(c.classes, name)
		case '#':
			c.id = name
		default:
			c.kind = name
		}
		step = step[n:]
	}
	return c, true
}

// hidden says whether the sheet hides an element: for some property the rule that
// holds does, and neither does the element's own style say otherwise.
func (s *sheet) hidden(n *html.Node) bool {
	holds := map[string]*rule{}
	look := func(name string) {
		for _, r := range s.rules[name] {
			if r.fits(n) && (holds[r.property] == nil || r.over(holds[r.property])) {
				holds[r.property] = r
			}
		}
	}
	look("")
	look(strings.ToLower(n.Data))
	if id := attribute(n, "id"); id != "" {
		look("#" + id)
	}
	for class := range strings.FieldsSeq(attribute(n, "class")) {
		look("." + class)
	}
	if len(holds) == 0 {
		return false
	}
	own := stated(attribute(n, "style"))
	for property, r := range holds {
		if r.hides && (r.important || !own[property]) {
			return true
		}
	}
	return false
}

// stated are the properties that an element's own style sets.
func stated(style string) map[string]bool {
	if style == "" {
		return nil
	}
	out := map[string]bool{}
	for d := range strings.SplitSeq(style, ";") {
		if name, _, ok := strings.Cut(d, ":"); ok {
			out[strings.ToLower(strings.TrimSpace(name))] = true
		}
	}
	return out
}

// hide takes out of a page what its own style sheets hide.
func hide(doc *html.Node) {
	s := sheetOf(doc)
	if !s.hides {
		return
	}
	var gone []*html.Node
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.DataAtom != atom.Html && n.DataAtom != atom.Body && n.DataAtom != atom.Head && s.hidden(n) {
			gone = append(gone, n)
		}
	}
	for _, n := range gone {
		if n.Parent != nil {
			n.Parent.RemoveChild(n)
		}
	}
}
