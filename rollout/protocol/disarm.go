package protocol

import "regexp"

// armed are the beginnings of what could pass for the protocol's or the chat
// template's own: tags of every protocol in any spelling, with attributes, spaces,
// capitals or brackets that look alike; the marks of chat templates and image
// placeholders. The first group is what is broken off.
var armed = []*regexp.Regexp{
	regexp.MustCompile(`(?i)([<＜﹤‹〈⟨❮])(\s*[/／⁄∕]?\s*(?:think|tool_?call|tool_?response|answer|search|information|reason|text_?search|code|function|image|img|video|system|user|assistant|s|bos|eos|start_of_turn|end_of_turn)\b)`),
	regexp.MustCompile(`([<＜])([|｜])`),
	regexp.MustCompile(`(<)(<SYS>>|</SYS>>)`),
	regexp.MustCompile(`(\[)(/?(?:INST|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|SYSTEM_PROMPT)\])`),
}

// Disarm breaks whatever in text of strangers could be taken for a tag of any
// protocol, for the mark of a chat template or for an image: a space stands behind
// its bracket, as Tame puts it. Characters that show nothing must be gone before
// (fence.Visible): they could hide a tag.
func Disarm(text string) string {
	for _, re := range armed {
		text = re.ReplaceAllString(text, "$1 $2")
	}
	return text
}
