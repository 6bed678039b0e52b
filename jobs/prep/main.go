// Command prep brings the files of other systems into one form; see docs/questions.md and docs/passages.md.
package main

import (
	"context"
	"os"
	"runtime"
	"runtime/debug"

	"searchloop/corpus"
	"searchloop/corpus/stats"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	List         bool     `help:"List the formats and exit."`
	Stats        bool     `help:"Describe the datasets of --in (questions, passages) on a page --out FILE.html; compare training and test questions."`
	Format       string   `placeholder:"NAME" help:"Format of the input: one that --list shows, or a mapping of the recipe."`
	What         string   `placeholder:"KIND" help:"questions or passages, where a format gives both."`
	In           []string `sep:"none" placeholder:"FILE" help:"Input file (repeatable, order matters)."`
	Out          string   `placeholder:"DIR" help:"Folder of the dataset."`
	Images       string   `placeholder:"DIR" help:"Folder of the image store (default: OUT/images)."`
	ImageRoot    []string `sep:"none" placeholder:"DIR" help:"Folder of images that rows name by a relative path (repeatable)."`
	More         []string `arg:"" optional:"" name:"file" help:"Further input files, after those of --in."`
	Map          []string `sep:"none" placeholder:"FIELD=COLUMN,…" help:"With --format map: the columns of a field (repeatable)."`
	MapFile      string   `placeholder:"FILE" help:"With --format map: a YAML file of fields and columns."`
	Keep         []string `sep:"none" placeholder:"COLUMN=VALUE,…" help:"With --format map: only rows whose column has one of the values (repeatable)."`
	Split        string   `help:"Split of all rows, instead of their own."`
	DataSource   string   `placeholder:"NAME" help:"data_source of all rows, instead of their own."`
	System       string   `placeholder:"TEXT" help:"System message of the prompt column (default: the recipe's)."`
	Prefix       string   `placeholder:"TEXT" help:"Text before the question in the prompt column (default: the recipe's)."`
	As           string   `placeholder:"SYSTEM" help:"Write the exact verl rows of mm-deepresearch, mmsearch-r1 or search-r1 instead of ours."`
	ImageCells   string   `enum:"relative,absolute,bytes" default:"relative" help:"Form of the images column: relative or absolute paths, or bytes."`
	RequireImage bool     `help:"Leave out questions without an image."`
	Unique       bool     `help:"Reject passages whose contents an earlier one has."`
	ChunkTokens  int      `placeholder:"N" help:"Cut passages into pieces of at most N tokens."`
	ChunkOverlap int      `placeholder:"M" help:"Tokens with which a piece repeats the end of the one before."`
	Tokenizer    string   `placeholder:"DIR" help:"Tokenizer that counts them: folder of tokenizer.json or vocab.txt."`
	DecodeImages bool     `help:"Decode every image to its end; those that cannot be shown make rejects."`
	Limit        int64    `placeholder:"N" help:"Read only the first N rows."`
	MaxRejects   float64  `default:"0.1" help:"Share of rejected rows above which the job ends with exit code 3."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if c.Stats {
		return stats.Write(ctx, r, stats.Options{In: append(c.In, c.More...), Images: append(c.ImageRoot, c.images()...), Out: c.Out})
	}
	return corpus.Prep(ctx, r, corpus.PrepOptions{List: c.List, Format: c.Format, What: c.What, In: append(c.In, c.More...), Out: c.Out, Images: c.Images, ImageRoots: c.ImageRoot,
		Map: c.Map, MapFile: c.MapFile, Keep: c.Keep, Split: c.Split, DataSource: c.DataSource, System: c.System, Prefix: c.Prefix, As: c.As, Cells: c.ImageCells, RequireImage: c.RequireImage, DecodeImages: c.DecodeImages, Unique: c.Unique,
		Chunk: corpus.Chunking{Tokens: c.ChunkTokens, Overlap: c.ChunkOverlap, Tokenizer: c.Tokenizer}, Limit: c.Limit, MaxRejects: c.MaxRejects})
}

func (c *command) images() []string {
	if c.Images == "" {
		return nil
	}
	return []string{c.Images}
}

func main() {
	// Rows are let go as they are written. With less garbage waiting, the peak of
	// memory depends less on how long the job runs.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(45)
	}
	// Nor shall the collector run every few megabytes while there is little: memory
	// that nobody touches counts for it and takes no place.
	floor := make([]byte, 12<<20)
	defer runtime.KeepAlive(floor)
	job.Main("prep", "Bring questions, passages and images of other systems into one form.", &command{})
}
