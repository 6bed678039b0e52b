package tool

import (
	"encoding/json"

	openai "github.com/sashabaranov/go-openai"

	"searchloop/internal/fail"
	"searchloop/internal/llm"
	"searchloop/internal/recipe"
	"searchloop/rollout/protocol"
)

// schema is the form of arguments that most tools have.
var schema = json.RawMessage(`{"type":"object","properties":{"query_list":{"type":"array","items":{"type":"string"},"description":"queries"}},"required":["query_list"]}`)

// schemas of tools with arguments of their own, by name: those of vision-deepresearch.
var schemas = map[string]json.RawMessage{
	"search":            json.RawMessage(`{"type":"object","properties":{"query":{"type":"array","items":{"type":"string"},"minItems":1,"description":"queries"}},"required":["query"]}`),
	CropAndSearch:       json.RawMessage(`{"type":"object","properties":{"image_id":{"type":"string","description":"number of the image"},"bbox":{"type":"array","items":{"type":"array","items":{"type":"number"},"minItems":4,"maxItems":4},"minItems":1,"description":"boxes [x1, y1, x2, y2], 0 to 1000"},"goal":{"type":"string","description":"what to find out"}},"required":["image_id","bbox","goal"]}`),
	protocol.ToolPython: json.RawMessage(`{"type":"object","properties":{}}`),
	Visit:               json.RawMessage(`{"type":"object","properties":{"url":{"type":"array","items":{"type":"string"},"minItems":1,"maxItems":5,"description":"addresses of pages"},"goal":{"type":"string","description":"what to find out"}},"required":["url","goal"]}`),
}

// Schemas describes tools for a chat template, in the recipe's order. Nothing is
// opened: whoever teaches a policy needs the same words as whoever lets it play.
func Schemas(tools []recipe.Tool) []llm.Tool {
	var out []llm.Tool
	for _, t := range tools {
		s := schemas[t.Name]
		if s == nil {
			s = schema
		}
		out = append(out, llm.Tool{Name: t.Name, Description: t.Description, Parameters: s})
	}
	return out
}

// Functions are the tool schemas that a rollout sends to the policy's server, in
// the form in which it sends them; nil when the recipe sends none. They stand in
// the system message, so a policy must be taught with the same ones.
func Functions(rec *recipe.Recipe) (json.RawMessage, error) {
	if !rec.Protocol.ToolSchemas {
		return nil, nil
	}
	var list []openai.Tool
	for _, t := range Schemas(rec.Tools) {
		list = append(list, openai.Tool{Type: openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: t.Parameters}})
	}
	text, err := json.Marshal(list)
	return text, fail.Wrap(fail.Bug, "tool schemas", "", err)
}
