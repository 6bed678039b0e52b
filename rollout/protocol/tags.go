package protocol

import "strings"

// Tag is one opening or closing tag of a protocol in a text.
type Tag struct {
	Name     string // think, tool_call, answer, …
	Close    bool
	From, To int // the tag itself is text[From:To]
}

// Names of the tags.
const (
	Think        = "think"         // mm-deepresearch, search-r1, vision-deepresearch
	ToolCall     = "tool_call"     // mm-deepresearch, vision-deepresearch
	ToolResponse = "tool_response" // likewise
	Answer       = "answer"        // all
	Search       = "search"        // search-r1, mmsearch-r1
	Information  = "information"   // likewise
	Reason       = "reason"        // mmsearch-r1
	TextSearch   = "text_search"   // mmsearch-r1
)

var names = []string{Think, ToolCall, ToolResponse, Answer}

// Tags lists the tags of mm-deepresearch in text, in order. A tag is exactly
// <name> or </name>: no spaces, attributes or capitals.
func Tags(text string) []Tag { return TagsOf(text, names) }

// TagsOf lists the tags of the given names.
func TagsOf(text string, names []string) []Tag {
	var out []Tag
	for at := 0; ; {
		i := strings.IndexByte(text[at:], '<')
		if i < 0 {
			return out
		}
		at += i
		rest := text[at+1:]
		inner, closing := strings.CutPrefix(rest, "/")
		at++
		for _, n := range names {
			if len(inner) > len(n) && inner[len(n)] == '>' && inner[:len(n)] == n {
				to := at + len(n) + 1
				if closing {
					to++
				}
				out = append(out, Tag{Name: n, Close: closing, From: at - 1, To: to})
				at = to
				break
			}
		}
	}
}

// closers tells where the last closing tag of each name is, so that a text of
// many unclosed tags is not searched again for each of them.
func closers(tags []Tag) map[string]int {
	last := map[string]int{}
	for i, t := range tags {
		if t.Close {
			last[t.Name] = i
		}
	}
	return last
}

// end finds the closing tag of name in tags[from:last+1]; -1 if there is none.
func end(tags []Tag, from, last int, name string) int {
	for i := from; i <= last; i++ {
		if tags[i].Close && tags[i].Name == name {
			return i
		}
	}
	return -1
}

// block is a closed pair of tags with what stands between.
type block struct {
	Name     string
	Body     string
	From, To int // tags included
}

// blocks lists the closed blocks of the given names that stand in no opaque block,
// in order. Of several opening tags before a closing one the innermost counts. An
// opaque block of the first kind must be closed to be one (an unclosed thought
// hides nothing); one of the second kind takes the rest of the text when it is not
// closed (a result that the model invents).
func blocks(text string, names []string, thought, result string) []block {
	all := append([]string{result}, names...)
	if thought != "" {
		all = append(all, thought)
	}
	tags := TagsOf(text, all)
	last := closers(tags)
	var out []block
	for i := 0; i < len(tags); i++ {
		open := tags[i]
		if open.Close {
			continue
		}
		j := end(tags, i+1, last[open.Name], open.Name)
		switch {
		case j < 0 && open.Name == result:
			return out
		case j < 0:
			continue
		case open.Name == thought || open.Name == result:
			i = j
			continue
		}
		for k := j - 1; k > i; k-- {
			if tags[k].Name == open.Name && !tags[k].Close {
				open = tags[k]
				break
			}
		}
		out = append(out, block{open.Name, text[open.To:tags[j].From], open.From, tags[j].To})
		i = j
	}
	return out
}

// Tame breaks the given tags inside text that nobody vouches for, so that they
// cannot end the block that the text is put into, nor begin one: <answer> becomes
// < answer>.
func Tame(text string, names ...string) string {
	tags := TagsOf(text, names)
	if len(tags) == 0 {
		return text
	}
	var b strings.Builder
	at := 0
	for _, t := range tags {
		b.WriteString(text[at : t.From+1])
		b.WriteByte(' ')
		at = t.From + 1
	}
	b.WriteString(text[at:])
	return b.String()
}

// Complete puts the end tag back that a server has cut off a turn as its stop
// text: the one of stops whose block was opened last and is still open.
func Complete(text string, stops []string) string {
	best, at := "", -1
	for _, stop := range stops {
		name := strings.Trim(stop, "</>")
		if i := strings.LastIndex(text, "<"+name+">"); i > at && !strings.Contains(text[i:], stop) {
			best, at = stop, i
		}
	}
	return text + best
}
