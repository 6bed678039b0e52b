package eval

import (
	"encoding/json"
	"strings"

	"searchloop/rollout/protocol"
	"searchloop/rollout/trajectory"
)

// Health says whether the policy still reasons in readable form; accuracy can stay
// high after that is lost.
type Health struct {
	Repetition float64 `parquet:"repetition"`       // share of the runs of four words, over all turns of the policy, that stood there before
	Queries    int32   `parquet:"queries"`          // asked for in all calls
	Distinct   int32   `parquet:"distinct_queries"` // of them, different but for case and white space
	BadTurns   int32   `parquet:"bad_turns"`        // turns of the policy whose action could not be read
	OpenTags   int32   `parquet:"open_tags"`        // turns in which a tag is opened and not closed, or the other way round
}

// gram is how many words make a run whose repetition counts.
const gram = 4

func healthOf(turns []trajectory.Turn) (h Health) {
	seen, queries := map[string]bool{}, map[string]bool{}
	runs, again := 0, 0
	for _, t := range turns {
		if t.Role != "assistant" {
			continue
		}
		if t.Error != "" {
			h.BadTurns++
		}
		if !balanced(t.Text) {
			h.OpenTags++
		}
		words := strings.Fields(t.Text)
		for i := 0; i+gram <= len(words); i++ {
			key := strings.Join(words[i:i+gram], " ")
			runs++
			if seen[key] {
				again++
			}
			seen[key] = true
		}
	}
	for _, t := range turns {
		if t.Called() {
			for _, q := range queriesOf(t.Args) {
				h.Queries++
				queries[strings.ToLower(strings.Join(strings.Fields(q), " "))] = true
			}
		}
	}
	h.Distinct = int32(len(queries))
	h.Repetition = float64(again) / float64(max(runs, 1))
	return h
}

// queriesOf reads the queries among a call's arguments.
func queriesOf(args string) (out []string) {
	var fields map[string]any
	if json.Unmarshal([]byte(args), &fields) != nil {
		return nil
	}
	for _, name := range []string{"query_list", "queries", "query"} {
		switch v := fields[name].(type) {
		case string:
			out = append(out, v)
		case []any:
			for _, q := range v {
				if s, ok := q.(string); ok {
					out = append(out, s)
				}
			}
		}
	}
	return out
}

// tags are those that a policy writes, of all protocols.
var tags = []string{protocol.Think, protocol.Reason, protocol.ToolCall, protocol.Search, protocol.TextSearch, protocol.Answer}

func balanced(text string) bool {
	for _, t := range tags {
		if strings.Count(text, "<"+t+">") != strings.Count(text, "</"+t+">") {
			return false
		}
	}
	return true
}
