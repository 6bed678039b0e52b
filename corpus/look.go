package corpus

// Look is a look at a part of a question's image that was made when the question was:
// boxes around one thing, tight and wide, what searching for them gave, and what a
// model said of it. Looks are an optional list of a questions dataset's column synth;
// a rollout can begin after them (docs/synth.md).
type Look struct {
	What        string    `parquet:"what" json:"what"`               // what the boxes are around
	Boxes       []LookBox `parquet:"boxes,list" json:"boxes"`        // by scale
	Hits        []LookHit `parquet:"hits,list" json:"hits"`          // those that a model was asked about
	Turn        string    `parquet:"turn" json:"turn"`               // of a policy that asks for this look, in the recipe's protocol
	Observation string    `parquet:"observation" json:"observation"` // what the tool answers
	Found       string    `parquet:"found" json:"found"`             // the thing's name; "" when no hit shows it
}

// LookBox is a part of an image, 0 to 1000 over its width and height.
type LookBox struct {
	Left   float64 `parquet:"left" json:"left"`
	Top    float64 `parquet:"top" json:"top"`
	Right  float64 `parquet:"right" json:"right"`
	Bottom float64 `parquet:"bottom" json:"bottom"`
	Scale  int32   `parquet:"scale" json:"scale"` // per cent of the proposed box
}

// LookHit is what a search for a part found, and the verdict on it.
type LookHit struct {
	Title string  `parquet:"title" json:"title"`
	Link  string  `parquet:"link" json:"link"`
	Score float32 `parquet:"score" json:"score"`
	Box   int32   `parquet:"box" json:"box"`   // place in Boxes of the part that it is most like
	Same  bool    `parquet:"same" json:"same"` // it shows the same thing
	Why   string  `parquet:"why" json:"why"`   // why there is no verdict; "" when there is
}

// Looked is a question's looks, as they stand in its column synth.
type Looked struct {
	ID    string `parquet:"id"`
	Synth *struct {
		Looks []Look `parquet:"looks,list"`
	} `parquet:"synth,optional"`
}
