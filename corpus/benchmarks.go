package corpus

import (
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"searchloop/internal/recipe"
)

// mapped is a format that a mapping describes.
func mapped(f Format, m mapping) Format {
	m.DataSourceIs, m.SplitIs = f.DataSource, f.Split
	f.Questions = m.rows
	if f.Files == nil {
		f.Files = map[string][]string{Questions: tableFiles}
	}
	if f.ImageDirs == nil {
		f.ImageDirs = []string{"images"}
	}
	return f
}

// simpleVQAFormat takes the English half of SimpleVQA, 1,013 of its questions.
var simpleVQAFormat = mapped(Format{
	Name: "simplevqa", DataSource: "searchR1_SimpleVQA", Split: "test",
	Doc:    "SimpleVQA: the questions whose language is EN; images as base64 text",
	Fields: "data_id, question, answer, image, language; original_category, vqa_category, source, atomic_question, atomic_fact",
	From:   "huggingface.co/datasets/m-a-p/SimpleVQA: the Parquet files of the test split",
}, mapping{Mapping: recipe.Mapping{
	ID: []string{"data_id"}, IDPrefix: "simplevqa_", Question: []string{"question"}, Answers: []string{"answer"}, Images: []string{"image"},
	Category: []string{"vqa_category", "original_category"}, Meta: []string{"original_category", "source", "atomic_question", "atomic_fact"},
	Keep: map[string][]string{"language": {"EN", "en", "English"}},
}})

// mmSearchPlusFormat reads MMSearch-Plus, whose texts are hidden from crawlers.
var mmSearchPlusFormat = mapped(Format{
	Name: "mmsearch-plus", DataSource: "searchR1_MMSearchPlus", Split: "test",
	Doc:    "MMSearch-Plus: Arrow or Parquet; texts are unscrambled with the canary the authors published",
	Fields: "question, answer (list), img_1 ... img_5; category, difficulty, subtask, arxiv_id, video_url",
	From:   "huggingface.co/datasets/Cie1/MMSearch-Plus: the .arrow files",
}, mapping{decode: unscramble("MMSearch-Plus", "question", "answer", "arxiv_id", "video_url"), Mapping: recipe.Mapping{
	ID: []string{"id", "data_id"}, IDPrefix: "mmsearch-plus_", Question: []string{"question"}, Answers: []string{"answer"},
	Images:   []string{"img_1", "img_2", "img_3", "img_4", "img_5"},
	Category: []string{"category"}, Meta: []string{"difficulty", "subtask", "arxiv_id", "video_url"},
}})

// vdrBenchFormat reads the benchmark of Vision-DeepResearch.
var vdrBenchFormat = mapped(Format{
	Name: "vdr-bench", DataSource: "searchR1_VDRBench", Split: "test",
	Doc:    "VDR-Bench of Vision-DeepResearch, full or testmini",
	Fields: "question, answer, image or images; id, category",
	From:   "huggingface.co/datasets/Osilly/VDR-Bench or Osilly/VDR-Bench-testmini: the Parquet files",
}, mapping{Mapping: recipe.Mapping{
	ID: []string{"id", "idx", "_id", "question_id"}, IDPrefix: "vdr-bench_", Question: []string{"question_original", "question", "query"},
	Answers: []string{"answer", "answers"}, Candidates: []string{"aliases"}, Images: []string{"image", "images"},
	Category: []string{"category", "domain"}, Split: []string{"split"}, Meta: []string{"image_caption", "difficulty"},
}})

// browseCompVLFormat reads BrowseComp-VL. Its two files number their rows alike
// and are told apart by the names of the images.
var browseCompVLFormat = mapped(Format{
	Name: "browsecomp-vl", DataSource: "searchR1_BrowseCompVL", Split: "test",
	Doc:       "BrowseComp-VL of WebWatcher: level 1 and 2, JSON lines or JSON objects one after the other",
	Fields:    "question, answers (list), image_path; domain",
	From:      "github.com/Alibaba-NLP/DeepResearch, WebAgent/WebWatcher: bc_vl_level1.jsonl, bc_vl_level2.jsonl, images beside them",
	ImageDirs: []string{"images", "image"},
}, mapping{name: imageStem, Mapping: recipe.Mapping{
	ID: []string{"id", "data_id", "image_path"}, IDPrefix: "browsecomp-vl_", Question: []string{"question"}, Answers: []string{"answers", "answer"},
	Images: []string{"image_path", "image", "file_path"}, Category: []string{"domain", "category"}, Meta: []string{"image_path"},
}})

// imageStem is the name of an image file without folders and extension.
func imageStem(path string) string {
	path = path[strings.LastIndexByte(path, '/')+1:]
	stem, _, _ := strings.Cut(path, ".")
	return stem
}

// unscramble undoes the scrambling of texts that BrowseComp introduced: base64
// of the text XORed with the SHA-256 of a canary, repeated. A text that is none
// of these is taken as it is: some copies of the data sets are in the clear.
func unscramble(canary string, columns ...string) func(column, text string) (string, error) {
	key := sha256.Sum256([]byte(canary))
	return func(column, text string) (string, error) {
		if !slices.Contains(columns, column) {
			return text, nil
		}
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(b) == 0 {
			return text, nil
		}
		for i := range b {
			b[i] ^= key[i%len(key)]
		}
		if !utf8.Valid(b) {
			if len(text)%4 == 0 && len(text) > 64 {
				return "", errors.New("the text is scrambled with another canary")
			}
			return text, nil
		}
		return string(b), nil
	}
}
