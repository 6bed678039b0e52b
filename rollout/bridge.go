package rollout

import (
	"strings"
	"text/template"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

// bridge lets a policy without eyes go on where looks at a question's image ended: it
// reads what was seen as text, while the row has the looks as turns of a policy that
// sees, after which the text policy's own turns follow (Vision-DeepResearch's text
// bridging). The row has no tokens, since nobody read it as it stands.
type bridge struct {
	text  *template.Template
	looks map[string][]corpus.Look // by question
}

// openBridge reads the looks of the questions; nil when the recipe has no bridge.
func openBridge(rec *recipe.Recipe, dir string, qs []corpus.Question) (*bridge, error) {
	if rec.Protocol.Bridge == "" {
		return nil, nil
	}
	b := &bridge{looks: map[string][]corpus.Look{}}
	var err error
	if b.text, err = template.New("protocol.bridge").Option("missingkey=error").Parse(rec.Protocol.Bridge); err != nil {
		return nil, fail.Wrap(fail.Usage, "read recipe: protocol.bridge", "", err)
	}
	for q, err := range table.ReadDataset[corpus.Looked](dir) {
		if err != nil {
			return nil, err
		}
		if q.Synth != nil {
			b.looks[q.ID] = q.Synth.Looks
		}
	}
	for _, q := range qs {
		if len(b.looks[q.ID]) == 0 {
			return nil, fail.WithHint(fail.New(fail.BadInput, "read questions", dir, "the question %s has no looks (column synth.looks), and the recipe has a bridge", q.ID),
				"give questions that synth made with crops, or a recipe without protocol.bridge")
		}
	}
	return b, nil
}

// cross opens a trajectory after its looks: the row as one that sees would have begun
// it, the messages as text.
func (t *talk) cross() error {
	p := t.recipe.Protocol
	if s := protocol.System(p, t.asked); s != "" {
		t.row.Turns = append(t.row.Turns, trajectory.Turn{Role: "system", Text: s})
	}
	t.row.Turns = append(t.row.Turns, trajectory.Turn{Role: "user", Text: t.protocol.User(t.asked), Images: t.q.ImageIDs})
	looks := t.bridge.looks[t.q.ID]
	for _, l := range looks {
		said := t.protocol.Read(l.Turn, protocol.Place{Round: t.rounds})
		if len(said.Calls) != 1 || said.Calls[0].Problem != "" {
			return fail.WithHint(fail.New(fail.BadInput, "read looks", t.q.ID, "the protocol %s reads no call in the turn %q", p.Name, l.Turn), "play with the protocol that the looks were made for")
		}
		c := said.Calls[0]
		t.row.Turns = append(t.row.Turns, trajectory.Turn{Role: "assistant", Text: l.Turn, Call: c.Name, Args: c.Args, Finish: "stop"})
		text := protocol.Cut(strings.ToValidUTF8(l.Observation, "�"), p.ToolChars)
		t.row.Turns = append(t.row.Turns, trajectory.Turn{Role: t.protocol.Role(), Call: c.Name, Args: c.Args,
			Text: t.protocol.Tell(protocol.Observation{Call: c, Text: text, Question: t.asked})})
		t.calls[c.Name]++
		t.rounds++
	}
	if s := protocol.System(p, protocol.Question{Text: t.q.Text}); s != "" {
		t.messages = append(t.messages, llm.Message{Role: "system", Text: s})
	}
	var b strings.Builder
	if err := t.bridge.text.Execute(&b, struct {
		Question string
		Looks    []corpus.Look
	}{t.q.Text, looks}); err != nil {
		return fail.Wrap(fail.Usage, "fill in protocol.bridge", "", err)
	}
	t.messages = append(t.messages, llm.Message{Role: "user", Text: b.String()})
	t.inexact = true
	return nil
}
