// Command lens makes a lens dataset, what reverse image search returned for the
// image of each question, of published caches and image archives. See docs/lens.md.
package main

import (
	"context"

	"searchloop/corpus"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Cache      []string `sep:"none" placeholder:"FILE" help:"Lens cache, JSON lines or JSON (repeatable; later ones win). Without any the dataset is empty: every question is reported as without an entry."`
	Tar        []string `sep:"none" placeholder:"FILE" help:"Archive of the images: .tar, .tar.gz, .tar.zst (repeatable)."`
	ImageRoot  []string `sep:"none" placeholder:"DIR" help:"Folder in which images lie unpacked (repeatable)."`
	Questions  string   `placeholder:"DIR" help:"Questions dataset, to report questions without an entry."`
	Out        string   `required:"" placeholder:"DIR" help:"Folder of the dataset."`
	Images     string   `placeholder:"DIR" help:"Folder of the image store (default: OUT/images)."`
	MaxMissing float64  `default:"0.5" help:"Share of missing images above which the job ends with exit code 3."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	return corpus.Lens(ctx, r, corpus.LensOptions{Cache: c.Cache, Tar: c.Tar, Roots: c.ImageRoot, Questions: c.Questions,
		Out: c.Out, Images: c.Images, MaxMissing: c.MaxMissing})
}

func main() { job.Main("lens", "Unpack lens images, repair the paths of lens caches.", &command{}) }
