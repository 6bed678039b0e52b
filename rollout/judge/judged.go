package judge

import (
	"strings"

	"searchloop/internal/secret"
	"searchloop/rollout/reward"
	"searchloop/rollout/trajectory"
)

// exact gives the verdict of a row that needs no LLM judge, and who gave it; ""
// when one must be asked.
func (w *work) exact(t *trajectory.Row) (verdict, by string) {
	switch {
	case t.Status == trajectory.Failed || !t.HasAnswer:
		return trajectory.NoAnswer, ""
	case len(t.Answers) == 0:
		return trajectory.JudgeError, "" // there is no truth to compare with
	case reward.MatchBy(w.rec.Reward, t.Answer, t.Answers):
		return trajectory.Correct, "exact_match"
	case t.Answer == "" || w.panel == nil:
		return trajectory.Incorrect, "exact_match"
	}
	return "", ""
}

// judged puts a row of the dataset together. A row is scored when it has a
// verdict, or no answer to judge; a failed trajectory never is.
func (w *work) judged(t *trajectory.Row, verdict, by, reply string) (trajectory.Judged, error) {
	j := trajectory.Judged{ID: t.ID, Question: t.Question, Group: t.Group, Status: t.Status, Verdict: verdict, By: by,
		Reply: secret.Scrub(strings.ToValidUTF8(reply, "�")), // judges have quoted keys

		Correct: verdict == trajectory.Correct}
	if by == "judge" {
		j.JudgeModel, j.PromptHash = w.panel.names(), w.panel.judges[0].hash
	}
	if t.Status == trajectory.Failed || verdict == trajectory.Unparsable || verdict == trajectory.JudgeError {
		return j, nil
	}
	r, err := reward.Score(w.rec.Reward, t, j.Correct)
	j.Components, j.Reward, j.Scored = r.Parts, r.Reward, r.Scored && err == nil
	return j, err
}

// missing says whether a row should have a verdict and has none.
func missing(j *trajectory.Judged) bool {
	return j.Verdict == trajectory.Unparsable || j.Verdict == trajectory.JudgeError
}

// Summary is what a run found, over the shards that it made. It is the job's
// result with --json.
type Summary struct {
	Rows       int     `json:"rows"`
	Scored     int     `json:"scored"`
	Correct    int     `json:"correct"`
	Incorrect  int     `json:"incorrect"`
	NoAnswer   int     `json:"no_answer"`
	Unparsable int     `json:"unparsable"`
	Failed     int     `json:"failed"`      // the judge failed
	FailedRows int     `json:"failed_rows"` // failed trajectories
	Masked     int     `json:"masked"`      // have a verdict or no answer, and no reward by the rule
	ByJudge    int     `json:"by_judge"`
	FromCache  int     `json:"from_cache"`  // verdicts that no judge was asked for, since they were known
	Accuracy   float64 `json:"accuracy"`    // correct of the scored and the masked
	MeanReward float64 `json:"mean_reward"` // of the scored

	Agreement []Agreement `json:"agreement,omitempty"` // over the whole dataset

	reward float64
}

func (s *Summary) add(j *trajectory.Judged) {
	s.Rows++
	if j.By == "judge" {
		s.ByJudge++
	}
	switch {
	case j.Status == trajectory.Failed:
		s.FailedRows++
	case j.Verdict == trajectory.Correct:
		s.Correct++
	case j.Verdict == trajectory.Incorrect:
		s.Incorrect++
	case j.Verdict == trajectory.NoAnswer:
		s.NoAnswer++
	case j.Verdict == trajectory.Unparsable:
		s.Unparsable++
	default:
		s.Failed++
	}
	switch {
	case j.Scored:
		s.Scored++
		s.reward += j.Reward
		s.MeanReward = s.reward / float64(s.Scored)
	case j.Status != trajectory.Failed && !missing(j):
		s.Masked++
	}
	if n := s.Scored + s.Masked; n > 0 {
		s.Accuracy = float64(s.Correct) / float64(n)
	}
}
