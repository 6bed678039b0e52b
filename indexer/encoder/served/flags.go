package served

import (
	"searchloop/internal/llm"
)

// Flags are those of jobs that ask the encoder of an index for queries' vectors.
type Flags struct {
	EncoderImages   string `enum:",vllm,infinity,jina" default:"" placeholder:"FORM" help:"How an encoder in a server is sent images, if it reads them: vllm, infinity or jina."`
	EncoderParallel int    `default:"8" placeholder:"N" help:"Requests to such a server at once."`
}

// Options are what the flags say.
func (f Flags) Options() Options {
	return Options{Images: llm.ImageForm(f.EncoderImages), Parallel: f.EncoderParallel}
}

// ModelFlags are those of jobs that make an index known to an encoder.
type ModelFlags struct {
	Flags
	EncoderModel string `placeholder:"NAME" help:"Model of an encoder in a server (default: its only one)."`
	Normalize    bool   `help:"Bring the vectors of such a server to length 1, if it does not."`
}

// Options are what the flags say.
func (f ModelFlags) Options() Options {
	o := f.Flags.Options()
	o.Model, o.Normalize = f.EncoderModel, f.Normalize
	return o
}
