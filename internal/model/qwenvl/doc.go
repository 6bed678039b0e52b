// Package qwenvl is Qwen3-VL, Qwen3-VL-MoE and Qwen2.5-VL (Hugging Face's
// Qwen3VLForConditionalGeneration, Qwen3VLMoeForConditionalGeneration and
// Qwen2_5_VLForConditionalGeneration) and, as their cases without a vision tower,
// Qwen3, Qwen3-MoE, Qwen2.5 and Llama decoders: loading, saving, a training pass
// with a hand-written gradient, and generation with a cache for many sequences at
// once.
//
// A folder in the Hugging Face layout or a Config and a seed go in. Training
// takes packs of token ids, positions and image patches and gives log-probs of
// chosen tokens and gradients; generation takes steps of tokens and gives the
// logits after each. It does not tokenise, prepare images, sample or update
// weights.
//
// The numerical reference is transformers in float32; testdata holds its values.
// All arithmetic is in the operations of a tensor.Backend. Logits never exist for
// more than one chunk of rows.
//
// A Model is used by one goroutine at a time, except where a method says
// otherwise.
package qwenvl
