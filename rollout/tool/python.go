package tool

import (
	"context"
	"fmt"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/sandbox"
	"searchloop/rollout/protocol"
)

// What the policy reads of a program that printed nothing, and of one that did not end.
const NoOutput = "(no output)"

var tooLong = fmt.Sprintf("Error: the program ran longer than %d seconds.", sandbox.Seconds)

// python runs a program that the policy wrote, in a sandbox of its own.
type python struct{ in *sandbox.Python }

func (t python) run(ctx context.Context, _ *corpus.Question, c protocol.Call) (Result, error) {
	o, err := t.in.Run(ctx, c.Code)
	if err != nil {
		return Result{}, err
	}
	out := Result{Text: strings.TrimRight(o.Text, "\n")}
	if o.Cut {
		out.Text += "\n[output cut]"
	}
	switch {
	case o.TimedOut:
		out.Problem = tooLong
		out.Text = strings.TrimSpace(out.Text + "\n" + tooLong)
	case o.Exit != 0:
		out.Problem = fmt.Sprintf("the program ended with status %d", o.Exit)
	}
	if out.Text == "" {
		out.Text = NoOutput
	}
	return out, nil
}
