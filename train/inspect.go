package train

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/model/qwenvl"
	"searchloop/internal/recipe"
	"searchloop/internal/table"
	"searchloop/internal/token"
	"searchloop/rollout/trajectory"
)

// InspectOptions say which rows are shown, and what they are.
type InspectOptions struct {
	Policy   string // for its tokenizer, and for what rows are checked against
	Rollouts string
	Judged   string
	Images   []string
	IDs      []string // rows; empty: the first Rows of them
	Rows     int
	Colour   bool // of a terminal; otherwise trained text stands in «»
}

// Inspect prints rows as grpo would see them: whether and why not, reward,
// group and advantage, and the tokens with what is trained set apart. Weights
// are not read.
func Inspect(w io.Writer, log *slog.Logger, rec *recipe.Recipe, o InspectOptions) error {
	cfg, err := qwenvl.LoadConfig(o.Policy)
	if err != nil {
		return err
	}
	tok, err := token.LoadBPE(o.Policy)
	if err != nil {
		return err
	}
	read, err := qwenPictures(o.Policy)
	if err != nil {
		return err
	}
	v := inspector{w: w, colour: o.Colour, say: func(ids []int32) string { return tok.Decode(ids) }, epochReader: epochReader{
		rollouts: o.Rollouts, judged: o.Judged, images: OpenPictures(read, o.Images...), settings: rec.GRPO, log: log, names: identities(o.Policy),
		check: Checker{Traits: traitsOf(cfg), Known: tok.Size(), Budget: rec.GRPO.PackTokens, Recompute: rec.GRPO.OldLogprobs == Recompute, Retokenised: rec.GRPO.Retokenised == "accept"},
	}}
	return v.show(o)
}

type inspector struct {
	epochReader
	w      io.Writer
	colour bool
	say    func(ids []int32) string
}

func (v *inspector) show(o InspectOptions) error {
	e, err := v.read()
	if err != nil {
		return err
	}
	trained, refused := map[string]*Sequence{}, map[string]*Refusal{}
	for _, s := range e.rows {
		trained[s.ID] = s
	}
	for _, r := range e.refused {
		refused[r.id] = r.reason
	}
	shown := 0
	for row, err := range table.ReadDataset[trajectory.Row](o.Rollouts) {
		if err != nil {
			return err
		}
		if len(o.IDs) > 0 && !slices.Contains(o.IDs, row.ID) || len(o.IDs) == 0 && shown == o.Rows {
			continue
		}
		shown++
		v.row(&row, trained[row.ID], refused[row.ID])
	}
	if len(o.IDs) > shown {
		return fail.New(fail.Usage, "inspect", o.Rollouts, "%d of the %d rows asked for are there", shown, len(o.IDs))
	}
	st := e.stats
	fmt.Fprintf(v.w, "%d rows: %d trained on, %d refused; %d groups, %d of equal rewards; reward %s ± %s\n", st.Rows, st.TrainedRows, len(e.refused),
		st.Groups, st.EqualGroups, short(st.Reward.mean()), short(st.Reward.std()))
	return nil
}

// row prints one trajectory.
func (v *inspector) row(row *trajectory.Row, s *Sequence, r *Refusal) {
	fmt.Fprintf(v.w, "%s  status %s, %d tokens%s, temperature %g, log-probs %s\n", row.ID, row.Status, len(row.TokenIDs), sourceNote(row), row.Temperature, row.LogprobMode)
	switch {
	case r != nil:
		fmt.Fprintf(v.w, "  refused: %v\n", r)
	case s == nil:
		fmt.Fprintf(v.w, "  not trained on: its status, its reward, or a group without variance\n")
	default:
		fmt.Fprintf(v.w, "  reward %s, advantage %s, group %s; %d trained tokens\n", short(s.Reward), short(s.Advantage), row.Group, s.Trained)
	}
	text := []rune{}
	images := row.Images
	at := 0
	flush := func(to int, mask bool) {
		part := v.plain(v.say(row.TokenIDs[at:to]))
		switch {
		case !mask:
		case v.colour && s != nil && s.Advantage < 0:
			part = "\x1b[31m" + part + "\x1b[0m"
		case v.colour:
			part = "\x1b[32m" + part + "\x1b[0m"
		default:
			part = "«" + part + "»"
		}
		text = append(text, []rune(part)...)
		at = to
	}
	trained := func(i int) bool { return i < len(row.LossMask) && row.LossMask[i] }
	for i := 0; i < len(row.TokenIDs); i++ {
		if len(images) > 0 && int(images[0].Offset) == i {
			if i > at {
				flush(i, trained(i-1))
			}
			im := images[0]
			images = images[1:]
			n := 0
			for i+n < len(row.TokenIDs) && row.TokenIDs[i+n] == v.check.ImagePad {
				n++
			}
			text = append(text, []rune(fmt.Sprintf("[image %.8s %d×%d×%d, tokens %d–%d]", im.ID, im.GridT, im.GridH, im.GridW, i, i+n))...)
			at = i + n
			if n > 0 {
				i += n - 1
			}
			continue
		}
		if i > at && trained(i) != trained(i-1) {
			flush(i, trained(i-1))
		}
	}
	if n := len(row.TokenIDs); at < n {
		flush(n, trained(n-1))
	}
	for l := range strings.Lines(string(text)) {
		fmt.Fprintf(v.w, "  | %s\n", strings.TrimSuffix(l, "\n"))
	}
}

// plain shows control characters, so that a row cannot drive the terminal.
func (v *inspector) plain(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' || r == 0x7f {
			return '␦'
		}
		return r
	}, s)
}

// sourceNote says of which tokens it is not known that they were sampled.
func sourceNote(row *trajectory.Row) string {
	if row.TokenSource == trajectory.Retokenised {
		return " made of the texts"
	}
	return ""
}
