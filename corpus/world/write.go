package world

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/table"
)

// Options of Write.
type Options struct {
	Out            string `json:"-"` // folder of the raw files
	Seed           uint64
	Train, Test    int // places of each split
	TrainQuestions int // 0: every question
	TestQuestions  int
	Free           float64 `json:",omitempty"` // share of the held-out questions that need no search; 0: as in the training questions
}

// The files that Write leaves in Options.Out.
const (
	TrainFile    = "train.parquet"          // verl rows with image bytes
	TestFile     = "test.parquet"           // the same for the held-out places
	PassagesFile = "passages.jsonl"         // {id, contents}, line order = document order
	ImagesFile   = "image_search.parquet"   // {image, img_path, text}
	LensFile     = "lens_cached_data.jsonl" // image paths relative to the archive
	ArchiveFile  = "images.tar.gz"
)

// Write makes the world's raw files. They are untidy where real ones are: every
// forty-first lens entry names an image that the archive lacks, and candidate
// answers are JSON in one row and a Python list in the next.
func Write(ctx context.Context, r *job.Run, o Options) error {
	if o.Train < 2 || o.Test < 1 || o.Train+o.Test > MaxPlaces {
		return fail.New(fail.Usage, "make the demo world", o.Out, "%d training and %d test places asked; at least 2 and 1, together at most %d", o.Train, o.Test, MaxPlaces)
	}
	if !(o.Free >= 0 && o.Free < 1) {
		return fail.New(fail.Usage, "make the demo world", o.Out, "--free is %v, want a share below 1", o.Free)
	}
	d, err := r.Dataset(job.Spec{Dir: o.Out, Schema: "searchloop/demo-world", Version: 1, Params: o})
	if err != nil || d.Complete() || d.DryRun() {
		return err
	}
	w := New(o.Seed, o.Train, o.Test)
	train, test := w.Draw(Train, questionsOr(o.TrainQuestions), 0), w.Draw(Test, questionsOr(o.TestQuestions), o.Free)
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{TrainFile, func(to io.Writer) error { return w.writeQuestions(to, Train, train) }},
		{TestFile, func(to io.Writer) error { return w.writeQuestions(to, Test, test) }},
		{PassagesFile, w.writePassages},
		{ImagesFile, w.writeImages},
		{LensFile, func(to io.Writer) error { return w.writeLens(to, train, test) }},
		{ArchiveFile, w.writeArchive},
	} {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := publish(filepath.Join(o.Out, f.name), f.write); err != nil {
			return fail.Wrap(fail.Bug, "write the demo world", filepath.Join(o.Out, f.name), err)
		}
	}
	r.Log.Info("demo world written", "places", len(w.Places), "train", len(train), "test", len(test), "dir", o.Out)
	return d.SealFiles([]string{TrainFile, TestFile, PassagesFile, ImagesFile, LensFile, ArchiveFile}, nil)
}

func questionsOr(n int) int {
	if n == 0 {
		return 1 << 30
	}
	return n
}

func publish(path string, write func(io.Writer) error) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := write(f); err != nil {
		return err
	}
	return f.Commit()
}

// The published verl shape of a question row; see docs/questions.md.
type rawQuestion struct {
	DataSource  string     `parquet:"data_source"`
	Prompt      []rawTurn  `parquet:"prompt,list"`
	Images      []rawImage `parquet:"images,list"`
	Ability     string     `parquet:"ability"`
	RewardModel rawReward  `parquet:"reward_model"`
	ExtraInfo   rawExtra   `parquet:"extra_info"`
	AgentName   string     `parquet:"agent_name"`
	Category    string     `parquet:"category"`
}
type rawTurn struct {
	Role    string `parquet:"role"`
	Content string `parquet:"content"`
}
type rawImage struct {
	Bytes []byte  `parquet:"bytes,optional"`
	Path  *string `parquet:"path,optional"`
}
type rawReward struct {
	GroundTruth struct {
		Target []string `parquet:"target,list"`
	} `parquet:"ground_truth"`
	Style            string `parquet:"style"`
	CandidateAnswers string `parquet:"candidate_answers"`
}
type rawExtra struct {
	Index           string `parquet:"index"`
	NeedToolsKwargs bool   `parquet:"need_tools_kwargs"`
	Question        string `parquet:"question"`
	Split           string `parquet:"split"`
}

func id(split string, i int) string { return fmt.Sprintf("demo_%s_%05d", split, i) }

func (w *World) writeQuestions(to io.Writer, split string, qs []Question) error {
	out := table.NewWriter[rawQuestion](to)
	for i, q := range qs {
		text := q.Text
		row := rawQuestion{DataSource: "searchloop/demo", Ability: "search", AgentName: "tool_agent", Category: q.Kind}
		if q.ShowsImage {
			text = "<image>" + text
			row.Images = []rawImage{{Bytes: Emblem(w.Places[q.Place])}}
		}
		row.Prompt = []rawTurn{{Role: "user", Content: text}}
		row.RewardModel.GroundTruth.Target = []string{q.Answer}
		row.RewardModel.Style = "rule"
		if i%2 == 0 {
			row.RewardModel.CandidateAnswers = fmt.Sprintf("[%q]", q.Answer)
		} else {
			row.RewardModel.CandidateAnswers = fmt.Sprintf("['%s']", q.Answer)
		}
		row.ExtraInfo = rawExtra{Index: id(split, i), NeedToolsKwargs: true, Question: text, Split: split}
		if err := out.Write(row); err != nil {
			return err
		}
	}
	return out.Close()
}

func (w *World) writePassages(to io.Writer) error {
	enc := json.NewEncoder(to)
	for _, p := range w.Passages() {
		if err := enc.Encode(struct {
			ID       string `json:"id"`
			Contents string `json:"contents"`
		}{p.ID, p.Contents}); err != nil {
			return err
		}
	}
	return nil
}

type rawPicture struct {
	Image   rawImage `parquet:"image"`
	ImgPath string   `parquet:"img_path"`
	Text    string   `parquet:"text"`
}

func (w *World) writeImages(to io.Writer) error {
	out := table.NewWriter[rawPicture](to)
	for i, p := range w.Places {
		if err := out.Write(
			rawPicture{rawImage{Bytes: Emblem(p)}, emblemPath(i), EmblemTitle(p.Name)},
			rawPicture{rawImage{Bytes: Map(p)}, mapPath(i), MapTitle(p.Name)},
		); err != nil {
			return err
		}
	}
	return out.Close()
}

func emblemPath(place int) string { return fmt.Sprintf("images/emblem_%04d.png", place) }
func mapPath(place int) string    { return fmt.Sprintf("images/map_%04d.png", place) }

type rawLens struct {
	DataID string       `json:"data_id"`
	Cached []rawLensHit `json:"cached_data"`
}
type rawLensHit struct {
	Title string `json:"cached_title"`
	Path  string `json:"cached_images_path"`
}

func (w *World) writeLens(to io.Writer, train, test []Question) error {
	enc := json.NewEncoder(to)
	n := 0
	for _, split := range []struct {
		name string
		qs   []Question
	}{{Train, train}, {Test, test}} {
		for i, q := range split.qs {
			if !q.ShowsImage {
				continue
			}
			path := emblemPath(q.Place)
			if n++; n%41 == 0 {
				path = fmt.Sprintf("images/lost_%04d.png", q.Place)
			}
			name := w.Places[q.Place].Name
			if err := enc.Encode(rawLens{id(split.name, i), []rawLensHit{
				{EmblemTitle(name), path}, {MapTitle(name), mapPath(q.Place)},
			}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *World) writeArchive(to io.Writer) error {
	zip := gzip.NewWriter(to)
	out := tar.NewWriter(zip)
	for i, p := range w.Places {
		for _, f := range []struct {
			name string
			data []byte
		}{{emblemPath(i), Emblem(p)}, {mapPath(i), Map(p)}} {
			if err := out.WriteHeader(&tar.Header{Name: f.name, Mode: 0o644, Size: int64(len(f.data)), Format: tar.FormatUSTAR}); err != nil {
				return err
			}
			if _, err := io.Copy(out, bytes.NewReader(f.data)); err != nil {
				return err
			}
		}
	}
	if err := out.Close(); err != nil {
		return err
	}
	return zip.Close()
}
