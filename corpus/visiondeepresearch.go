package corpus

import (
	"strings"

	"searchloop/internal/recipe"
)

// visionDeepResearchFormat reads what Vision-DeepResearch trains and evaluates
// on: question, answer and images in any of the encodings of its published
// files: bytes, lists of numbers, {"0": 137, "1": 80, ...}, data URLs, paths.
var visionDeepResearchFormat = mapped(Format{
	Name: "vision-deepresearch", DataSource: "vision-deepresearch", Split: "train",
	Doc:    "Vision-DeepResearch RL and evaluation rows: Parquet or JSON lines; images in every encoding of the published files",
	Fields: "question, answer, image or images; id, idx or _id; question_original, image_caption, extra_info",
	From:   "huggingface.co/datasets/Osilly/Vision-DeepResearch-Toy-RL-Data, and the output of the project's scripts",
}, mapping{decode: func(column, text string) (string, error) { return withoutImageID(text), nil }, Mapping: recipe.Mapping{
	ID: []string{"id", "idx", "_id", "extra_info.id", "extra_info.index"}, Question: []string{"question_original", "question", "extra_info.question"},
	Answers: []string{"answer", "extra_info.answer"}, Images: []string{"image", "images", "extra_info.images"},
	Split: []string{"split", "extra_info.split"}, Category: []string{"category"}, Meta: []string{"image_caption"},
}})

// withoutImageID takes the line off that names the image before the question:
// "image_id: 1 \n Question: ...".
func withoutImageID(text string) string {
	t := strings.TrimSpace(text)
	if !strings.HasPrefix(t, "image_id:") {
		return text
	}
	_, rest, ok := strings.Cut(t, "Question:")
	if !ok {
		return text
	}
	return strings.TrimSpace(rest)
}
