package indexer

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"searchloop/corpus"
	"searchloop/indexer/encoder"
	"searchloop/indexer/encoder/served"
	"searchloop/indexer/passages"
	"searchloop/indexer/vectors"
	"searchloop/internal/device"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/journal"
	"searchloop/internal/llm"
	"searchloop/internal/manifest"
	"searchloop/internal/picture"
	"searchloop/internal/shard"
	"searchloop/internal/tensor"
)

// EmbedOptions are the arguments of Embed. The folders are those of the encoder,
// the passages dataset and the vectors dataset to make.
type EmbedOptions struct {
	Encoder, Passages, Out string // the encoder's may be the address of a server
	Override               encoder.Override
	Server                 served.Options // of such a server; its Override is the one above
	Half                   bool           // store half floats
	// Content is what to embed, "text" or "image"; "" is images where the encoder
	// reads them and the passages have them.
	Content  string
	GPU      *device.GPU     // where a folder's encoder computes; nil: on the processor
	Products tensor.Products // how most products of texts are taken there
}

// vectorsMeta is what the manifest of a vectors dataset says beside the rows.
type vectorsMeta struct {
	Space   vectors.Space `json:"space"`
	Encoder string        `json:"encoder"`                  // folder, relative to the dataset, or address
	Images  llm.ImageForm `json:"encoder_images,omitempty"` // how a server is sent images
	Device  string        `json:"device,omitempty"`         // the GPU that computed them
}

// embedBatch is how many passages are one record of the journal: what a killed
// job does again, and what stopping waits for.
const embedBatch = 64

// imageBatch is embedBatch for images, which take the time of a thousand tokens each.
const imageBatch = 4

// Embed makes a vectors dataset from a passages dataset: row n is the vector of
// passage n, of its text or of its image. Shards are contiguous rows. A killed job goes on at the batch it was
// in and ends with the same bytes.
func Embed(ctx context.Context, r *job.Run, o EmbedOptions) (err error) {
	o.Server.Override, o.Server.Log = o.Override, r.Log
	set, err := passages.Open(o.Passages)
	if err != nil {
		return err
	}
	images, err := openImages(o.Passages)
	if err != nil {
		return err
	}
	enc, err := o.encoder(ctx, r)
	if err != nil {
		return err
	}
	if c, ok := enc.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	space, err := contentOf(enc, o, &images)
	if err != nil {
		return err
	}
	ds, err := r.Dataset(job.Spec{Dir: o.Out, Schema: vectors.Schema, Version: vectors.Version, Ext: "arrow",
		Inputs: map[string]string{"passages": o.Passages}, Params: o.params(space)})
	if err != nil || ds.Complete() || ds.DryRun() {
		return err
	}
	for _, s := range ds.Todo() {
		e := embedder{enc: enc, space: space, images: images, half: o.Half}
		if err := e.shard(ctx, r, ds, s, set); err != nil {
			return err
		}
	}
	meta := vectorsMeta{Space: space, Encoder: relative(o.Out, enc.Dir()), Images: o.Server.Images}
	if o.GPU != nil {
		meta.Device = o.GPU.Name
	}
	return ds.Seal(meta)
}

// params is what the vectors depend on beside the passages.
func (o *EmbedOptions) params(s vectors.Space) any {
	format := ""
	if o.Half {
		format = vectors.Float16.String()
	}
	products := map[tensor.Products]string{tensor.E4M3Products: "e4m3", tensor.ByteProducts: "int8"}[o.Products]
	return struct {
		vectors.Space
		Format   string `json:"format,omitempty"`
		Device   string `json:"device,omitempty"`
		Products string `json:"products,omitempty"`
	}{s, format, o.GPU.Identity(), products}
}

// encoder gives the encoder. A server is not asked when the vectors that are there
// are what it would be asked for.
func (o *EmbedOptions) encoder(ctx context.Context, r *job.Run) (Encoder, error) {
	if !served.Is(o.Encoder) || r.Fresh {
		return openEncoder(ctx, o.Encoder, o.Server, o.GPU, o.Products)
	}
	if m, err := manifest.Open(o.Out); err == nil && m.Schema == vectors.Schema {
		var meta vectorsMeta
		if json.Unmarshal(m.Meta, &meta) == nil && o.Server.Expects(meta.Space) {
			return served.Assume(o.Encoder, meta.Space, o.Server), nil
		}
	}
	return openEncoder(ctx, o.Encoder, o.Server, o.GPU, o.Products)
}

// contentOf is the space of the vectors to make. images are set to nil when the
// vectors are to be of texts.
func contentOf(enc Encoder, o EmbedOptions, images **corpus.ImageStore) (vectors.Space, error) {
	space := enc.Space()
	switch {
	case o.Content == "text" || o.Content == "" && (*images == nil || !enc.ReadsImages()):
		*images = nil
		return space, nil
	case *images == nil:
		return space, fail.New(fail.BadInput, "embed", o.Passages, "the corpus has no images folder")
	case !enc.ReadsImages():
		hint := "Jina-CLIP-v2 and jina-embeddings-v4 read images and texts"
		if served.Is(o.Encoder) {
			hint = "if the server reads them, say in which form: --encoder-images " + llm.ImageForms
		}
		return space, fail.WithHint(fail.New(fail.BadInput, "embed", o.Encoder, "the encoder reads no images"), hint)
	}
	space.Content = vectors.Images
	return space, nil
}

func (e *embedder) shard(ctx context.Context, r *job.Run, ds *job.Dataset, spec shard.Spec, set *passages.Set) error {
	sh, err := ds.Begin(spec)
	if err != nil || sh == nil {
		return err
	}
	defer sh.Discard()
	if e.journal, err = sh.Journal(); err != nil {
		return err
	}
	part, err := sh.Part()
	if err != nil {
		return err
	}
	format := vectors.Float32
	if e.half {
		format = vectors.Float16
	}
	if e.out, err = vectors.NewWriter(part, e.space, format); err != nil {
		return err
	}
	lo, hi := spec.Range(set.Rows())
	e.progress = r.Progress("embed", hi-lo)
	defer e.progress.Done()
	defer e.settle() // before the journal is closed
	most := embedBatch
	if e.images != nil {
		most = imageBatch
	}
	row := lo
	var batch []corpus.Passage
	for p, err := range set.Range(lo, hi) {
		if err != nil {
			return err
		}
		if batch = append(batch, p); len(batch) < most {
			continue
		}
		if err := e.add(ctx, row, batch); err != nil {
			return err
		}
		row, batch = row+int64(len(batch)), nil
		if err := r.Interrupted(); err != nil {
			return err
		}
	}
	if len(batch) > 0 {
		if err := e.add(ctx, row, batch); err != nil {
			return err
		}
	}
	if err := e.finish(0); err != nil {
		return err
	}
	if err := e.out.Close(); err != nil {
		return err
	}
	return sh.Commit(e.out.Rows(), manifest.Counts{In: hi - lo, OK: e.out.Rows(), Reused: e.reused})
}

// embedder embeds batch after batch, each once in the life of its journal, and
// writes them in their order. Of a server's, several are under way at once.
type embedder struct {
	enc      Encoder
	space    vectors.Space
	images   *corpus.ImageStore // nil: texts are embedded
	half     bool
	journal  *journal.Journal
	out      *vectors.Writer
	progress *job.Progress
	reused   int64    // rows whose vectors the journal had
	flying   []*batch // begun, in the order of their rows
}

// batch is some passages and, once done is closed, their vectors.
type batch struct {
	row      int64 // of the first passage
	passages []corpus.Passage
	vecs     []float32
	reused   bool
	err      error
	done     chan struct{}
}

// add begins a batch and writes those that are to be finished before the next.
func (e *embedder) add(ctx context.Context, row int64, passages []corpus.Passage) error {
	b := &batch{row: row, passages: passages, done: make(chan struct{})}
	e.flying = append(e.flying, b)
	if e.enc.Parallel() == 1 {
		e.embed(ctx, b)
	} else {
		go e.embed(ctx, b)
	}
	return e.finish(e.enc.Parallel() - 1)
}

// finish writes the oldest batches until no more than left are under way.
func (e *embedder) finish(left int) error {
	for len(e.flying) > left {
		b := e.flying[0]
		<-b.done
		e.flying = e.flying[1:]
		if b.err != nil {
			return b.err
		}
		var ids []string
		for _, p := range b.passages {
			ids = append(ids, p.ID)
		}
		if b.reused {
			e.reused += int64(len(ids))
		}
		if err := e.out.Write(ids, b.vecs); err != nil {
			return err
		}
		e.progress.Add(int64(len(ids)), 0)
	}
	return nil
}

// settle waits for what is under way, so that the journal has it.
func (e *embedder) settle() {
	for _, b := range e.flying {
		<-b.done
	}
	e.flying = nil
}

// embed gives a batch its vectors.
func (e *embedder) embed(ctx context.Context, b *batch) {
	defer close(b.done)
	key := fmt.Sprintf("%012d+%d", b.row, len(b.passages))
	if payload, ok := e.journal.Get(key); ok && len(payload) == 4*len(b.passages)*e.space.Dim {
		b.vecs, b.reused = decodeFloats(payload), true
		return
	}
	if b.vecs, b.err = e.encode(ctx, b); b.err == nil {
		b.err = e.journal.Append(key, encodeFloats(b.vecs))
	}
}

// encode gives the vectors of a batch. An error about one passage names it.
func (e *embedder) encode(ctx context.Context, b *batch) ([]float32, error) {
	bad := func(i int, err error) error {
		return &fail.Error{Kind: fail.BadInput, Op: "embed", Row: b.row + int64(i) + 1, Sample: b.passages[i].ID, Err: err,
			Hint: "take the row out of the corpus and prepare it again: every row needs a vector"}
	}
	vecs, err := e.vectors(ctx, b, bad)
	if one := (*fail.Error)(nil); errors.As(err, &one) && one.Op == "encode" && one.Row > 0 && int(one.Row) <= len(b.passages) {
		err = bad(int(one.Row)-1, one.Err)
		err.(*fail.Error).Path, err.(*fail.Error).Hint = one.Path, cmp.Or(one.Hint, err.(*fail.Error).Hint)
	}
	return vecs, err
}

func (e *embedder) vectors(ctx context.Context, b *batch, bad func(i int, err error) error) ([]float32, error) {
	if e.images == nil {
		var texts []string
		for _, p := range b.passages {
			texts = append(texts, p.Contents)
		}
		return e.enc.Passages(ctx, texts)
	}
	var pictures []*picture.Picture
	for i, p := range b.passages {
		if p.ImageID == "" {
			return nil, bad(i, errors.New("the passage has no image"))
		}
		data, err := e.images.Get(p.ImageID)
		if err != nil {
			return nil, err
		}
		pic, err := picture.Decode(data)
		if err != nil {
			return nil, bad(i, err)
		}
		pictures = append(pictures, pic)
	}
	return e.enc.Images(ctx, pictures)
}

func encodeFloats(v []float32) []byte {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func decodeFloats(b []byte) []float32 {
	v := make([]float32, len(b)/4)
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}
