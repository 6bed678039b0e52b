package corpus

import (
	"strings"

	"searchloop/internal/fail"
)

// A verlForm is the exact schema in which one system stores its verl rows: names,
// order, nesting and types of the columns, as its trainer reads them.
type verlForm struct {
	name    string
	columns []verlColumn
	noImage bool                            // the system knows no images
	row     func(q Question, n int64) []any // the values of columns
}

var (
	verlImages = listOf("images", structOf("", verlColumn{name: "bytes", kind: verlBytes}, verlColumn{name: "path", kind: verlNull}))
	verlTruth  = structOf("ground_truth", listOf("target", verlColumn{}))
	// verlTools are the tools of MM-DeepResearch that get the row's truth and id.
	verlTools = []string{"text_search", "image_search_by_lens", "image_search_by_text_query", "model_search"}
)

var verlForms = []*verlForm{
	{
		name: "mm-deepresearch",
		columns: []verlColumn{
			verlImages, {name: "agent_name"}, {name: "data_source"},
			listOf("prompt", structOf("", texts("role", "content")...)), {name: "ability"},
			structOf("reward_model", verlTruth, verlColumn{name: "style"}, verlColumn{name: "candidate_answers"}),
			structOf("extra_info", verlColumn{name: "index"}, verlColumn{name: "need_tools_kwargs", kind: verlBool}, verlColumn{name: "question"}, verlColumn{name: "split"},
				structOf("tools_kwargs", verlToolColumns()...)),
			{name: "metadata", kind: verlNull},
		},
		row: func(q Question, _ int64) []any {
			truth := []any{listed(q.RewardModel.GroundTruth.Target)}
			shown := strings.Repeat(placeholder, len(q.Images)) + q.Text
			var tools []any
			for range verlTools {
				tools = append(tools, []any{[]any{truth, shown, q.DataSource, q.RewardModel.CandidateAnswers, q.ID}})
			}
			return []any{
				imageCells(q), q.AgentName, q.DataSource, messages(q, false), null(q.Ability),
				[]any{truth, q.RewardModel.Style, q.RewardModel.CandidateAnswers},
				[]any{q.ID, true, shown, q.Split, tools}, nil,
			}
		},
	},
	{
		name: "mmsearch-r1",
		columns: []verlColumn{
			{name: "data_id"}, listOf("prompt", structOf("", texts("content", "role")...)), verlImages,
			structOf("reward_model", texts("candidate_answers", "ground_truth", "style")...),
			{name: "data_source"}, {name: "image_urls", kind: verlNull}, {name: "category"},
		},
		row: func(q Question, _ int64) []any {
			// One user message, the bare question: the trainer puts its own prompt and
			// the image before it.
			truth, more := "", q.RewardModel.CandidateAnswers
			if t := q.RewardModel.GroundTruth.Target; len(t) > 0 {
				truth = t[0]
				if len(t) > 1 { // the one text of this form is not enough
					more = candidatesJSON(q.Answers[1:])
				}
			}
			return []any{
				q.ID, []any{[]any{q.Text, "user"}}, imageCells(q), []any{more, truth, q.RewardModel.Style},
				q.DataSource, nil, null(q.Category),
			}
		},
	},
	{
		name:    "search-r1",
		noImage: true,
		columns: []verlColumn{
			{name: "id"}, {name: "question"}, listOf("golden_answers", verlColumn{}), {name: "data_source"},
			listOf("prompt", structOf("", texts("content", "role")...)), {name: "ability"},
			structOf("reward_model", verlTruth, verlColumn{name: "style"}),
			structOf("extra_info", verlColumn{name: "index", kind: verlInt}, verlColumn{name: "split"}), {name: "metadata", kind: verlNull},
		},
		row: func(q Question, n int64) []any {
			// The index is the row's in the whole file: Search-R1 groups samples by it,
			// and with one that starts again in every source groups run together.
			answers := listed(q.Answers)
			return []any{
				q.ID, q.Text, answers, q.DataSource, messages(q, true), pick(q.Ability, "fact-reasoning"),
				[]any{[]any{answers}, q.RewardModel.Style}, []any{n, q.Split}, nil,
			}
		},
	},
}

func verlToolColumns() (out []verlColumn) {
	kwargs := append([]verlColumn{verlTruth}, texts("question", "data_source", "candidate_answers", "data_id")...)
	for _, t := range verlTools {
		out = append(out, structOf(t, structOf("create_kwargs", kwargs...)))
	}
	return out
}

// verlFormNamed finds a form; "" is none.
func verlFormNamed(name string) (*verlForm, error) {
	var names []string
	for _, f := range verlForms {
		if f.name == name {
			return f, nil
		}
		names = append(names, f.name)
	}
	if name == "" {
		return nil, nil
	}
	e := fail.New(fail.Usage, "prep", "", "nobody's verl rows are called %q", name)
	e.Hint = "--as takes " + strings.Join(names, ", ")
	return nil, e
}

func null(s string) any {
	if s == "" {
		return nil
	}
	return s
}

func listed(texts []string) []any {
	out := make([]any, len(texts))
	for i, t := range texts {
		out[i] = t
	}
	return out
}

func imageCells(q Question) []any {
	out := make([]any, len(q.Images))
	for i, im := range q.Images {
		out[i] = []any{im.Bytes, nil}
	}
	return out
}

// messages are the prompt's; contentFirst is the order of the struct's fields.
func messages(q Question, contentFirst bool) []any {
	out := make([]any, len(q.Prompt))
	for i, m := range q.Prompt {
		out[i] = []any{m.Role, m.Content}
		if contentFirst {
			out[i] = []any{m.Content, m.Role}
		}
	}
	return out
}
