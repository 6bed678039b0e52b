// Command lens makes a lens dataset, what reverse image search returned for the
// image of each question, of published caches and image archives; or, with
// --publish, uploads the images of questions for live search. See docs/lens.md and
// docs/published.md.
package main

import (
	"context"
	"os"
	"runtime/debug"
	"time"

	"searchloop/corpus"
	"searchloop/corpus/publish"
	"searchloop/internal/job"
)

type command struct {
	job.Flags
	Cache      []string      `sep:"none" placeholder:"FILE" help:"Lens cache, JSON lines or JSON (repeatable; later ones win). Without any the dataset is empty: every question is reported as without an entry."`
	Tar        []string      `sep:"none" placeholder:"FILE" help:"Archive of the images: .tar, .tar.gz, .tar.zst (repeatable)."`
	ImageRoot  []string      `sep:"none" placeholder:"DIR" help:"Folder in which images lie unpacked (repeatable)."`
	Questions  string        `placeholder:"DIR" help:"Questions dataset, to report questions without an entry."`
	Out        string        `required:"" placeholder:"DIR" help:"Folder of the dataset."`
	Images     string        `placeholder:"DIR" help:"Folder of the image store (default: OUT/images)."`
	Publish    string        `group:"Publish" placeholder:"URL" help:"Upload the images of --questions to s3://BUCKET/PREFIX (keys: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or by PUT to https://HOST/FOLDER (PUBLISH_TOKEN), and write their addresses to OUT."`
	Endpoint   string        `group:"Publish" placeholder:"URL" help:"S3-compatible storage, instead of AWS."`
	Public     string        `group:"Publish" placeholder:"URL" help:"Address below which everyone can read what was uploaded (default: signed addresses of S3, the address of PUT)."`
	Expires    time.Duration `group:"Publish" default:"168h" help:"How long signed addresses last."`
	MaxMissing float64       `default:"0.5" help:"Share of missing images above which the job ends with exit code 3."`
}

func (c *command) Run(ctx context.Context, r *job.Run) error {
	if c.Publish != "" {
		return publish.Run(ctx, r, publish.Options{Questions: c.Questions, Images: c.images(), Out: c.Out,
			To: c.Publish, Endpoint: c.Endpoint, Public: c.Public, Expires: c.Expires})
	}
	return corpus.Lens(ctx, r, corpus.LensOptions{Cache: c.Cache, Tar: c.Tar, Roots: c.ImageRoot, Questions: c.Questions,
		Out: c.Out, Images: c.Images, MaxMissing: c.MaxMissing})
}

// images are the stores to publish from; none: the one beside the questions.
func (c *command) images() []string {
	if c.Images == "" {
		return nil
	}
	return []string{c.Images}
}

func main() {
	// All entries stay in memory until the end: the collector has little to find.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
	job.Main("lens", "Unpack lens images, repair the paths of lens caches.", &command{})
}
