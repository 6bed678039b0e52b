package corpus

import (
	"path/filepath"
	"strings"
)

// searchR1Format reads Search-R1's data: its processed rows are verl rows, and
// what it makes them of are FlashRAG's JSON lines, one folder a source (nq,
// hotpotqa, ...) with a file a split. Ids start again in every source, so that
// the source's name is put before them.
var searchR1Format = func() Format {
	f := verlFormat
	f.Name = "search-r1"
	f.Doc = "NQ, HotpotQA and the other text questions of Search-R1: its Parquet, or FlashRAG's <source>/<split>.jsonl"
	f.Fields = "prompt, reward_model, data_source, extra_info; or id, question, golden_answers; ability"
	f.From = "huggingface.co/datasets/PeterJinGo/nq_hotpotqa_train; huggingface.co/datasets/RUC-NLPIR/FlashRAG_datasets"
	return f
}()

// folderSource guesses source and split of a file without such columns from
// FlashRAG's layout.
func folderSource(path string) (source, split string) {
	stem, _, _ := strings.Cut(filepath.Base(path), ".")
	switch stem {
	case "train", "dev", "test":
	default:
		return "", ""
	}
	if dir := filepath.Base(filepath.Dir(path)); dir != "." && dir != string(filepath.Separator) && dir != "in" {
		source = dir
	}
	return source, stem
}
