package live

import (
	"bytes"
	"io"
	"net/url"
	"regexp"
	"strings"

	"codeberg.org/readeck/go-readability/v2"
	"codeberg.org/readeck/go-readability/v2/render"
	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
	"golang.org/x/net/html/charset"

	"searchloop/internal/netguard"
)

// enoughText is how much an article must hold to stand for its page: pages that are
// lists or tables have no article, or only their first paragraph as one.
const enoughText = 250

// maxElements bounds the pages in which an article is looked for, which takes more
// than linear time; of larger ones all text is taken.
const maxElements = 20_000

// pageText is the text of a page, whatever its character set: its title, a line end,
// and the article that is on it, or else all that can be seen.
func pageText(b *netguard.Body) (text string, err error) {
	defer func() {
		if r := recover(); r != nil { // the libraries are not made for pages that mean harm
			text, err = "", errShape
		}
	}()
	in, err := charset.NewReader(bytes.NewReader(b.Data), b.Type)
	if err != nil {
		return "", err
	}
	if !strings.Contains(b.Type, "html") {
		text, err := io.ReadAll(in)
		return "\n" + strings.TrimSpace(string(text)), err
	}
	doc, err := html.ParseWithOptions(in, html.ParseOptionEnableScripting(false))
	if err != nil {
		return "", err
	}
	hide(doc)
	prune(doc)
	at, err := url.Parse(b.URL)
	if err != nil {
		return "", err
	}
	whole := render.InnerText(doc)
	find := readability.NewParser()
	find.MaxElemsToParse = maxElements
	article, err := find.ParseDocument(doc, at)
	title := ""
	if err == nil {
		title = article.Title()
	}
	if err == nil && article.Node != nil {
		if text := strings.TrimSpace(render.InnerText(article.Node)); len(text) >= enoughText || 2*len(text) > len(whole) {
			return titled(title, text), nil
		}
	}
	return titled(title, whole), nil
}

// titled is a page in the form in which tools take it.
func titled(title, text string) string {
	return strings.Join(strings.Fields(title), " ") + "\n" + strings.TrimSpace(text)
}

// Inline styles of what is not to be seen: by themselves, or where what does not fit
// is cut off.
var (
	unseen = regexp.MustCompile(`(?i)(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*(?:hidden|collapse)|(?:opacity|font-size)\s*:\s*0*\.?0+(?:px|pt|em|rem|%)?\s*(?:;|!|$)|(?:text-indent|left|top|right|bottom|margin-left|margin-top)\s*:\s*-(?:999|\d{4,})|color\s*:\s*transparent|clip\s*:\s*rect\(\s*0|clip-path\s*:\s*inset\(\s*(?:50|100)%|transform\s*:\s*scale\(\s*0\s*\))`)
	shrunk = regexp.MustCompile(`(?i)(?:^|;)\s*(?:max-)?(?:width|height)\s*:\s*[01](?:px)?\s*(?:;|!|$)`)
	cutOff = regexp.MustCompile(`(?i)overflow\s*:\s*(?:hidden|clip)`)
)

// prune takes out of a page what a reader does not see: comments, scripts, hidden
// elements. What style sheets hide, hide takes out.
func prune(n *html.Node) {
	for c := n.FirstChild; c != nil; {
		next := c.NextSibling
		if c.Type == html.CommentNode || c.Type == html.ElementNode && invisible(c) {
			n.RemoveChild(c)
		} else {
			prune(c)
		}
		c = next
	}
}

func invisible(n *html.Node) bool {
	switch n.DataAtom {
	case atom.Script, atom.Style, atom.Template, atom.Iframe, atom.Object, atom.Embed, atom.Svg, atom.Canvas, atom.Noscript, atom.Dialog:
		return !(n.DataAtom == atom.Script && strings.Contains(attribute(n, "type"), "ld+json")) // metadata, which the title is taken from
	case atom.Input, atom.Textarea, atom.Select, atom.Option:
		return true
	case atom.Html, atom.Body:
		return false // pages hide themselves until their scripts have run
	}
	for _, a := range n.Attr {
		switch a.Key {
		case "hidden":
			return true
		case "aria-hidden":
			if strings.EqualFold(strings.TrimSpace(a.Val), "true") {
				return true
			}
		case "style":
			if unseen.MatchString(a.Val) || shrunk.MatchString(a.Val) && cutOff.MatchString(a.Val) {
				return true
			}
		}
	}
	return false
}

func attribute(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if a.Key == key {
			return a.Val
		}
	}
	return ""
}
