package corpus

import (
	"context"
	"io"
	"slices"
	"strings"
	"sync"

	"searchloop/corpus/record"
	"searchloop/internal/table"
)

// passageBlock is what became of a block of lines. Its memory is used again, that of
// the texts in it, too.
type passageBlock struct {
	path  string
	keys  []idKey // of the lines
	lines []passageOf
	texts []byte
	made  []Passage              // of the lines without error
	ready table.Encoded[Passage] // made
}

// passageOf is a line of a block.
type passageOf struct {
	n       int64
	id      string
	err     error // why the line gives no passage
	lasting bool  // it remains the reason when an earlier line has the id
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
		var free sync.Pool // of *passageBlock
		for _, path := range in.Files {
			for b, err := range record.MapBlocks(path, func(lines record.Block) *passageBlock {
				b, ok := free.Get().(*passageBlock)
				if !ok {
					b = &passageBlock{}
				}
				b.path = path
				c.passageBlock(b, out, lines)
				return b
			}) {
				if err == nil {
					err = p.stopped(ctx, path)
				}
				if err == nil {
					err = p.takeBlock(b, seen, out)
				}
				if err != nil {
					return err
				}
				free.Put(b)
			}
		}
		if err := p.usable(); err != nil {
			return err
		}
		return out.Close()
	}
}

// passageBlock makes the passages of lines. It is called for several blocks at the
// same time.
func (c *canonical) passageBlock(b *passageBlock, out *table.Texts[Passage], lines record.Block) {
	f := passageFields{texts: slices.Grow(b.texts[:0], lines.Size())}
	b.keys, b.lines, b.made = b.keys[:0], b.lines[:0], b.made[:0]
	for l := range lines.Lines() {
		d, err, unfit := f.read(l)
		p := passageOf{n: l.N, id: f.id, err: err, lasting: true}
		if p.err == nil {
			p.err = checkID(p.id)
		}
		if p.err == nil {
			p.err, p.lasting = unfit, false
		}
		if p.err == nil {
			var made Passage
			if made, p.err = c.passage(draft[Document]{path: b.path, n: p.n, id: p.id, value: d}); p.err == nil {
				b.made = append(b.made, made)
			}
		}
		b.keys, b.lines = append(b.keys, keyOf(p.id)), append(b.lines, p)
	}
	b.texts = f.texts
	b.ready = out.Encode(b.made)
}

// takeBlock writes a block, in order.
func (p *preparation[T, R]) takeBlock(b *passageBlock, seen *idSet, out *table.Texts[Passage]) error {
	var kept []Passage // some of made; nil: all
	n, rejected := 0, int64(0)
	for i := range b.lines {
		l := &b.lines[i]
		again := l.id != "" && !seen.addKey(&b.keys[i])
		usable := l.err == nil
		if again && !l.lasting {
			l.err = errIDAgain
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
		if l.err == nil {
			continue
		}
		if !isRowError(l.err) {
			return l.err
		}
		rejected++
		p.reject(b.path, l.n, strings.Clone(l.id), l.err)
	}
	ok := int64(len(b.lines)) - rejected
	p.in += int64(len(b.lines))
	p.ok += ok
	p.progress.Add(ok, rejected)
	if kept != nil {
		b.ready = out.Encode(kept)
	}
	return out.Append(b.ready)
}
