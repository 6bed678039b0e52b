package corpus

import (
	"context"
	"io"

	"searchloop/corpus/record"
	"searchloop/internal/table"
)

// passageBlock is what became of a block of lines.
type passageBlock struct {
	rows   []Row[Document]
	drafts []draft[Document]      // of the rows, as if the ids of all were new
	made   []Passage              // of the drafts without error
	ready  table.Encoded[Passage] // made
}

// passageBlocks makes whole JSON lines of passages where preparation.run would make
// them row by row: a core that has read a block also encodes it, while its texts are
// near. Only whether ids are new is seen afterwards, in order; a block with one that
// is not is encoded once more. The rows are the same on both ways.
//
// It is nil when the way row by row is needed.
func (c *canonical) passageBlocks(in Input) func(context.Context, *preparation[Document, Passage], io.Writer) error {
	o := c.opt
	if c.format.Name != passagesFormat.Name || o.Unique || o.Chunk.Tokens > 0 || o.Limit > 0 {
		return nil
	}
	for _, path := range in.Files {
		if kind, err := tableKind(path); err != nil || kind != "json" {
			return nil
		}
	}
	return func(ctx context.Context, p *preparation[Document, Passage], w io.Writer) error {
		out, seen := newPassageTable(w), newIDSet()
		for _, path := range in.Files {
			for b, err := range record.MapBlocks(path, func(lines record.Block) passageBlock { return c.passageBlock(out, path, lines) }) {
				if err == nil {
					err = p.stopped(ctx, path)
				}
				if err == nil {
					err = p.takeBlock(b, seen, out)
				}
				if err != nil {
					return err
				}
			}
		}
		if err := p.usable(); err != nil {
			return err
		}
		return out.Close()
	}
}

// passageBlock makes the passages of a block. It is called for several at the same
// time.
func (c *canonical) passageBlock(out *table.Texts[Passage], path string, lines record.Block) passageBlock {
	b := passageBlock{rows: passageRows(path, lines)}
	b.drafts, b.made = make([]draft[Document], len(b.rows)), make([]Passage, 0, len(b.rows))
	for i, row := range b.rows {
		d := draftOf(row, true)
		var made Passage
		if d.err == nil {
			made, d.err = c.passage(d)
		}
		if d.err == nil {
			b.made = append(b.made, made)
		}
		b.drafts[i] = d
	}
	b.ready = out.Encode(b.made)
	return b
}

// takeBlock writes a block, in order.
func (p *preparation[T, R]) takeBlock(b passageBlock, seen *idSet, out *table.Texts[Passage]) error {
	var kept []Passage // some of made; nil: all
	n, rejected := 0, int64(0)
	for i := range b.drafts {
		d := &b.drafts[i]
		again := d.id != "" && !seen.add(d.id)
		usable := d.err == nil
		if again {
			d.err = draftOf(b.rows[i], false).err
		}
		switch {
		case usable && again && kept == nil:
			kept = append(make([]Passage, 0, len(b.made)), b.made[:n]...)
		case usable && !again && kept != nil:
			kept = append(kept, b.made[n])
		}
		if usable {
			n++
		}
		if d.err == nil {
			continue
		}
		if !isRowError(d.err) {
			return d.err
		}
		rejected++
		p.reject(d.path, d.n, d.id, d.err)
	}
	ok := int64(len(b.drafts)) - rejected
	p.in += int64(len(b.drafts))
	p.ok += ok
	p.progress.Add(ok, rejected)
	if kept != nil {
		b.ready = out.Encode(kept)
	}
	return out.Append(b.ready)
}
