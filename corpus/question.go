// Package corpus reads the data sets, passages, image corpora and lens caches of
// the supported systems and writes them in one canonical form: questions,
// passages, images and lens entries. It searches, embeds and judges nothing.
package corpus

// Question is one row of a questions dataset. The first columns are verl's, so
// that verl reads our files; the rest are ours. See docs/questions.md.
type Question struct {
	// verl's columns.
	DataSource  string      `parquet:"data_source,dict"`
	Prompt      []Message   `parquet:"prompt,list"`
	Images      []ImageCell `parquet:"images,list"`
	Ability     string      `parquet:"ability,dict"`
	RewardModel RewardModel `parquet:"reward_model"`
	ExtraInfo   ExtraInfo   `parquet:"extra_info"`
	AgentName   string      `parquet:"agent_name,dict"`

	// Ours.
	ID       string   `parquet:"id"`
	Text     string   `parquet:"question"`       // the bare question: no prefix, no <image>
	Answers  []string `parquet:"answers,list"`   // ground truth first, then candidate answers
	ImageIDs []string `parquet:"image_ids,list"` // SHA-256 (hex) of each image, in the order of Images
	Split    string   `parquet:"split,dict"`
	Category string   `parquet:"category,dict"`
	Meta     string   `parquet:"meta"` // JSON object of what else the source says about the row, or ""
}

// Message is one chat message of a verl prompt.
type Message struct {
	Role    string `parquet:"role,dict"`
	Content string `parquet:"content"`
}

// ImageCell is verl's and Hugging Face's image struct: encoded bytes or a path.
// Our own files leave Bytes null and point Path into the image store.
type ImageCell struct {
	Bytes []byte  `parquet:"bytes,optional"`
	Path  *string `parquet:"path,optional"`
}

// RewardModel is verl's ground truth column.
type RewardModel struct {
	Style            string      `parquet:"style,dict"`
	GroundTruth      GroundTruth `parquet:"ground_truth"`
	CandidateAnswers string      `parquet:"candidate_answers"` // a JSON array of strings
}

// GroundTruth holds the accepted target strings.
type GroundTruth struct {
	Target []string `parquet:"target,list"`
}

// ExtraInfo is the part of verl's extra_info that our jobs and verl's agent loop read.
type ExtraInfo struct {
	Index           string `parquet:"index"`
	Split           string `parquet:"split,dict"`
	Question        string `parquet:"question"`
	NeedToolsKwargs bool   `parquet:"need_tools_kwargs"`
}

// Passage is one row of a passages dataset. Row order is vector order is
// document order: row n of the dataset is vector n of an index built from it.
type Passage struct {
	ID       string `parquet:"id"`
	Contents string `parquet:"contents"` // first line: the title, then the body
	ImageID  string `parquet:"image_id"` // SHA-256 of the image for image corpora, else ""
}

// LensEntry is one row of a lens dataset: what a reverse image search once
// returned for the image of one question.
type LensEntry struct {
	DataID string    `parquet:"data_id"` // Question.ID
	Hits   []LensHit `parquet:"hits,list"`
}

// LensHit is one cached result. ImageID is empty when the cache names an image
// that does not exist; Path is what the cache said, for people.
type LensHit struct {
	Title   string `parquet:"title"`
	ImageID string `parquet:"image_id"`
	Path    string `parquet:"path"`
}
