package main

import (
	"encoding/json"

	openai "github.com/sashabaranov/go-openai"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/rollout/tool"
)

// schemas are the tool schemas that a rollout sends to the policy's server, in
// the form in which it sends them; empty when the recipe sends none. They stand
// in the system message, so a policy must be taught with the same ones.
func schemas(rec *recipe.Recipe) (json.RawMessage, error) {
	if !rec.Protocol.ToolSchemas {
		return nil, nil
	}
	var list []openai.Tool
	for _, t := range tool.Schemas(rec.Tools) {
		list = append(list, openai.Tool{Type: openai.ToolTypeFunction,
			Function: &openai.FunctionDefinition{Name: t.Name, Description: t.Description, Parameters: t.Parameters}})
	}
	text, err := json.Marshal(list)
	return text, fail.Wrap(fail.Bug, "tool schemas", "", err)
}
