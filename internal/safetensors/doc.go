// Package safetensors reads and writes Hugging Face's safetensors files
// (https://github.com/huggingface/safetensors, "Format"): 8 bytes of header
// length, a JSON header, then the tensors' bytes, little-endian, without gaps.
//
// A model folder goes in (model.safetensors, or model.safetensors.index.json and
// its shards), tensors come out as float32. A header is believed only after
// every length, offset, shape and name in it has been checked against the file;
// what does not fit is a fail.BadInput that says what. It knows no model and no
// layer, and it does not read pickles.
package safetensors

// Names of the files of a model folder.
const (
	FileName  = "model.safetensors"
	IndexName = "model.safetensors.index.json"
)

// MaxHeader is the longest header that is accepted, as in the reference
// implementation.
const MaxHeader = 100_000_000

// bits is the width of an element of every dtype that the format knows.
var bits = map[string]uint64{
	"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
	"BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
	"I16": 16, "U16": 16, "F16": 16, "BF16": 16,
	"I32": 32, "U32": 32, "F32": 32,
	"C64": 64, "F64": 64, "I64": 64, "U64": 64,
}
