package train

import (
	"context"
	"encoding/binary"
	"math"

	"searchloop/internal/fail"
	"searchloop/internal/journal"
)

// scorer computes log-probs of trained tokens in a pass of its own, before
// anything is trained, and keeps them in a journal, with the routes of a policy
// that has experts: they are computed once, also when the process dies in between.
type scorer struct {
	what     string // for messages
	path     string // of the journal
	header   string // what the values depend on
	policy   func() (Policy, error)
	images   *Pictures
	budget   int
	stopping <-chan struct{}
	kept     func(rows int64) // told how many were in the journal
	note     func(rows int64) // told what was computed
}

// scores returns one slice a row. The policy is only asked for when something is
// missing in the journal.
func (s *scorer) scores(ctx context.Context, rows []*Sequence) ([][]float32, error) {
	j, err := journal.Open(s.path, s.header)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	out := make([][]float32, len(rows))
	var missing []int
	for i, row := range rows {
		payload, ok := j.Get(row.ID)
		if !ok || len(payload) < 4*row.Trained {
			missing = append(missing, i)
			continue
		}
		out[i] = decodeFloats(payload[:4*row.Trained])
	}
	s.kept(int64(len(rows) - len(missing)))
	if len(missing) > 0 {
		if err := s.compute(ctx, rows, missing, out, j); err != nil {
			return nil, err
		}
	}
	return out, fail.Wrap(fail.Disk, s.what, s.path, j.Close())
}

func (s *scorer) compute(ctx context.Context, rows []*Sequence, missing []int, out [][]float32, j *journal.Journal) error {
	policy, err := s.policy()
	if err != nil {
		return err
	}
	var p packed
	var batch []*Sequence
	for _, members := range pack(rows, missing, s.budget) {
		select {
		case <-s.stopping:
			return fail.New(fail.Interrupted, s.what, "", "stopped; run again to continue")
		default:
		}
		if err := ctx.Err(); err != nil {
			return fail.Wrap(fail.Interrupted, s.what, "", err)
		}
		batch = batch[:0]
		for _, i := range members {
			batch = append(batch, rows[i])
		}
		logp, err := p.score(policy, s.images, batch)
		if err != nil {
			return err
		}
		for k, i := range members {
			out[i] = append([]float32(nil), logp[:p.trained[k]]...)
			logp = logp[p.trained[k]:]
			payload := encodeFloats(out[i])
			if p.routes != nil {
				cu := p.batch.CuSeqlens
				payload = appendRoutes(payload, p.routes, int(cu[k]), int(cu[k+1]), len(p.batch.Tokens))
			}
			if err := j.Append(rows[i].ID, payload); err != nil {
				return err
			}
		}
		s.note(int64(len(members)))
	}
	return nil
}

// score is a forward pass without a gradient.
func (p *packed) score(policy Policy, images *Pictures, rows []*Sequence) ([]float32, error) {
	if err := p.assemble(policy, images, rows); err != nil {
		return nil, err
	}
	pass, err := policy.Forward(&p.batch)
	if err != nil {
		return nil, err
	}
	defer pass.Release()
	logp, _ := pass.Score(p.rows, p.targets, p.temperature)
	p.routes = routesOf(pass)
	return logp, nil
}

func encodeFloats(x []float32) []byte {
	b := make([]byte, 0, 4*len(x))
	for _, v := range x {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func decodeFloats(b []byte) []float32 {
	x := make([]float32, len(b)/4)
	for i := range x {
		x[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return x
}
