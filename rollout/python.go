package rollout

import (
	"context"
	"slices"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/recipe"
	"searchloop/internal/sandbox"
	"searchloop/rollout/tool"
)

// openPython opens the sandbox for a recipe with a tool that runs programs. Where
// there is none the recipe comes back without the tool, so that rows made with and
// without it are not taken for the same.
func (o *Options) openPython(ctx context.Context, r *job.Run, rec *recipe.Recipe) (*recipe.Recipe, error) {
	runs := func(t recipe.Tool) bool { return tool.KindOf(t) == tool.Python }
	if !slices.ContainsFunc(rec.Tools, runs) {
		return rec, nil
	}
	p, err := sandbox.OpenPython(ctx)
	if err == nil {
		o.python = p
		return rec, nil
	}
	if fail.KindOf(err) != fail.Usage {
		return nil, err
	}
	r.Log.Warn("there is no sandbox here: the policy can run no programs", "because", err)
	without := *rec
	without.Tools = slices.DeleteFunc(slices.Clone(rec.Tools), runs)
	return &without, nil
}
