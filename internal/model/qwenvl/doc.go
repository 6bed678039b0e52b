// Package qwenvl is the dense Qwen3-VL model (Hugging Face's
// Qwen3VLForConditionalGeneration) and, as its case without a vision tower, the
// text model Qwen3 (Qwen3ForCausalLM): loading, saving, a training pass with a
// hand-written gradient, and generation with a cache for many sequences at once.
//
// A folder in the Hugging Face layout or a Config and a seed go in. Training
// takes packs of token ids, positions and image patches and gives log-probs of
// chosen tokens and gradients; generation takes steps of tokens and gives the
// logits after each. It does not tokenise, prepare images, sample or update
// weights.
//
// The numerical reference is transformers in float32; testdata holds its values.
// All arithmetic is float32 in the operations of package tensor. Logits never
// exist for more than one chunk of rows.
//
// A Model is used by one goroutine at a time, except where a method says
// otherwise.
package qwenvl
