//go:build cuda

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"searchloop/indexer/encoder"
	"searchloop/internal/bench"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
	"searchloop/internal/token"
)

// jinav4 begins the names of the figures.
const jinav4 = "embed jina-embeddings-v4 shape"

const (
	v4Texts  = 4096 // passages of a turn
	v4Images = 512  // images of a turn
	v4Sample = 16   // of each, compared with the peer's float32
)

// embedV4 measures a model of jina-embeddings-v4's shape with random weights, in a folder
// as published, with passages of about 170 tokens and JPEG files of 640×480.
func (m *meter) embedV4() error {
	dir := filepath.Join(m.dir, "v4")
	if err := writeV4(dir); err != nil {
		return err
	}
	var texts []string
	r := rand.New(rand.NewPCG(3, 4))
	for range v4Texts {
		b := make([]byte, 60+r.IntN(221)-3) // a letter is a token, and "Passage: " some
		for i := range b {
			b[i] = "\x00\x01\x02\x03"[r.IntN(4)] // never joined by the tokenizer
		}
		texts = append(texts, string(b))
	}
	files, err := writePhotos(filepath.Join(m.dir, "photos"))
	if err != nil {
		return err
	}
	start := time.Now()
	e, err := encoder.LoadOn(&tensor.Shared{Encoding: m.be}, dir, encoder.Override{}, tensor.OwnProducts)
	if err != nil {
		return err
	}
	load := time.Since(start).Seconds()
	ctx := context.Background()
	some, err := e.Passages(ctx, texts[:v4Sample])
	if err != nil {
		return err
	}
	var shown []*picture.Picture
	for _, f := range files[:v4Sample] {
		p, err := picture.Decode(f)
		if err != nil {
			return err
		}
		shown = append(shown, p)
	}
	seen, err := e.Images(ctx, shown)
	if err != nil {
		return err
	}
	onText, onImage := math.Inf(1), math.Inf(1)
	for range 2 {
		start := time.Now()
		if err := embedAll(e, texts); err != nil {
			return err
		}
		onText = min(onText, time.Since(start).Seconds())
		start = time.Now()
		if err := showAll(e, files, v4Images); err != nil {
			return err
		}
		onImage = min(onImage, time.Since(start).Seconds())
	}
	words, err := token.LoadUnmarked(dir)
	if err != nil {
		return err
	}
	tokens, ids := 0, make([][]int32, len(texts))
	for i, t := range texts {
		ids[i] = words.Encode("Passage: "+t, 0)
		tokens += len(ids[i])
	}
	const layer, patch = 2 * 36 * (2048*(2560+2048) + 3*2048*11008), 2 * 32 * (4*1280*1280 + 3*1280*3420)
	textFlop, imageFlop := float64(tokens)*layer, float64(v4Images)*(395*layer+1564*patch)
	rows := []bench.Row{
		{Name: jinav4 + ", passages", Unit: "passages/s", Ours: v4Texts / onText, Bound: 1,
			Note: fmt.Sprintf("%d passages of %d tokens, tokenising included; bfloat16, %.1f %% of 989 TFLOP/s without attention; loaded in %.0f s", v4Texts, tokens/v4Texts, 100*textFlop/onText/peak, load)},
		{Name: jinav4 + ", images", Unit: "images/s", Ours: v4Images / onImage, Bound: 1,
			Note: fmt.Sprintf("%d JPEG files of 640×480 (391 tokens), decoding included; %.1f %% of 989 TFLOP/s without attention", v4Images, 100*imageFlop/onImage/peak)},
	}
	if err := e.Close(); err != nil {
		return err
	}
	m.v4Peer(rows, dir, ids, some, seen)
	m.rows = append(m.rows, rows...)
	return nil
}

// v4Peer asks the peer for the same.
func (m *meter) v4Peer(rows []bench.Row, dir string, ids [][]int32, texts, images []float32) {
	why := bench.Missing(*python, "torch", "transformers")
	var v struct {
		Texts, Images       float64 // a second
		Text, Image         float64 // least cosine of ours to the peer's in float32
		PeerText, PeerImage float64 // of the peer's own in bfloat16
		Peer                string
	}
	if why == "" {
		input, err := json.Marshal(map[string]any{"ids": ids, "texts": texts, "images": images})
		if err == nil {
			err = os.WriteFile(filepath.Join(m.dir, "v4.json"), input, 0o666)
		}
		if err == nil {
			cmd := exec.Command(*python, *script, "v4", dir, filepath.Join(m.dir, "photos"), filepath.Join(m.dir, "v4.json"), fmt.Sprint(v4Images))
			cmd.Stderr = os.Stderr
			var text []byte
			if text, err = cmd.Output(); err == nil {
				err = json.Unmarshal(text, &v)
			}
		}
		if err != nil {
			why = "peer not measured: " + err.Error()
		}
	}
	for i := range rows {
		r := &rows[i]
		if why != "" {
			r.Note += "; " + why
			continue
		}
		r.PeerName = v.Peer
		if r.Peer = v.Texts; i == 0 {
			r.Note += fmt.Sprintf(" (the peer's without); least cosine to the peer's float32 %.5f, the peer's own %.5f", v.Text, v.PeerText)
		} else {
			r.Peer = v.Images
			r.Note += fmt.Sprintf(" (the peer's without); least cosine to the peer's float32 %.5f, the peer's own %.5f", v.Image, v.PeerImage)
		}
	}
}

// showAll embeds n images as the embed job does: batches of 4, as many at once as the
// encoder likes.
func showAll(e *encoder.Encoder, files [][]byte, n int) (err error) {
	var wait sync.WaitGroup
	var mu sync.Mutex
	room := make(chan struct{}, e.Parallel())
	for lo := 0; lo < n; lo += 4 {
		room <- struct{}{}
		wait.Go(func() {
			defer func() { <-room }()
			var list []*picture.Picture
			var one error
			for i := lo; i < lo+4 && one == nil; i++ {
				var p *picture.Picture
				if p, one = picture.Decode(files[i%len(files)]); one == nil {
					list = append(list, p)
				}
			}
			if one == nil {
				_, one = e.Images(context.Background(), list)
			}
			if one != nil {
				mu.Lock()
				err = one
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return err
}

// writeV4 makes a folder of the published shape. Weights are parts of one run of normal
// numbers, each tensor's from a place of its own: 7.5 GB are written as fast as the disk is.
func writeV4(dir string) error {
	adapters := filepath.Join(dir, "adapters")
	if err := os.MkdirAll(adapters, 0o777); err != nil {
		return err
	}
	added := []string{"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"}
	tokenizer, err := byteTokenizer(added)
	if err != nil {
		return err
	}
	id := func(mark string) int { return 256 + slices.Index(added, mark) }
	config, err := json.Marshal(map[string]any{
		"architectures": []string{"JinaEmbeddingsV4Model"}, "model_type": "qwen2_5_vl", "torch_dtype": "bfloat16", "tie_word_embeddings": true,
		"text_config": map[string]any{"model_type": "qwen2_5_vl_text", "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 11008, "num_hidden_layers": 36, "num_attention_heads": 16,
			"num_key_value_heads": 2, "max_position_embeddings": 128000, "rms_norm_eps": 1e-6, "hidden_act": "silu", "tie_word_embeddings": true, "rope_theta": 1e6,
			"rope_scaling": map[string]any{"type": "default", "rope_type": "default", "mrope_section": []int{16, 24, 24}}},
		"vision_config": map[string]any{"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2,
			"window_size": 112, "fullatt_block_indexes": []int{7, 15, 23, 31}, "out_hidden_size": 2048, "hidden_act": "silu", "in_channels": 3},
		"single_vector_pool_strategy": "mean", "task_names": []string{"retrieval"}, "matryoshka_dims": []int{128, 256, 512, 1024, 2048},
		"image_token_id": id("<|image_pad|>"), "video_token_id": id("<|video_pad|>"), "vision_start_token_id": id("<|vision_start|>"), "vision_end_token_id": id("<|vision_end|>"),
	})
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"config.json": string(config), "tokenizer.json": tokenizer,
		"preprocessor_config.json": `{"min_pixels": 3136, "max_pixels": 602112, "patch_size": 14, "temporal_patch_size": 2, "merge_size": 2,
 "image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}`,
		"adapters/adapter_config.json": `{"peft_type": "LORA", "r": 32, "lora_alpha": 32, "bias": "none"}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	model, lora := map[string][]int{"model.embed_tokens.weight": {151936, 2048}, "model.norm.weight": {2048}}, map[string][]int{}
	for i := range 36 {
		at := fmt.Sprintf("model.layers.%d.", i)
		model[at+"input_layernorm.weight"], model[at+"post_attention_layernorm.weight"] = []int{2048}, []int{2048}
		for name, s := range map[string][]int{"self_attn.q_proj": {2048, 2048}, "self_attn.k_proj": {256, 2048}, "self_attn.v_proj": {256, 2048}, "self_attn.o_proj": {2048, 2048},
			"mlp.gate_proj": {11008, 2048}, "mlp.up_proj": {11008, 2048}, "mlp.down_proj": {2048, 11008}} {
			model[at+name+".weight"] = s
			if strings.HasPrefix(name, "self_attn") && name != "self_attn.o_proj" {
				model[at+name+".bias"] = s[:1]
			}
			low := fmt.Sprintf("base_model.model.model.language_model.layers.%d.%s.lora_", i, name)
			lora[low+"A.retrieval.weight"], lora[low+"B.retrieval.weight"] = []int{32, s[1]}, []int{s[0], 32}
		}
	}
	linear := func(name string, out, in int) {
		model[name+".weight"], model[name+".bias"] = []int{out, in}, []int{out}
	}
	model["visual.patch_embed.proj.weight"], model["visual.merger.ln_q.weight"] = []int{1280, 3, 2, 14, 14}, []int{1280}
	linear("visual.merger.mlp.0", 5120, 5120)
	linear("visual.merger.mlp.2", 2048, 5120)
	for i := range 32 {
		at := fmt.Sprintf("visual.blocks.%d.", i)
		model[at+"norm1.weight"], model[at+"norm2.weight"] = []int{1280}, []int{1280}
		linear(at+"attn.qkv", 3840, 1280)
		linear(at+"attn.proj", 1280, 1280)
		linear(at+"mlp.gate_proj", 3420, 1280)
		linear(at+"mlp.up_proj", 3420, 1280)
		linear(at+"mlp.down_proj", 1280, 3420)
	}
	if err := writeRun(filepath.Join(dir, safetensors.FileName), model); err != nil {
		return err
	}
	return writeRun(filepath.Join(adapters, "adapter_model.safetensors"), lora)
}

// byteTokenizer is a tokenizer whose tokens are bytes, and the added ones.
func byteTokenizer(added []string) (string, error) {
	vocab := map[string]int{}
	next := 0
	for b := range 256 {
		r := rune(b)
		if !(b >= '!' && b <= '~' || b >= 0xa1 && b <= 0xac || b >= 0xae) { // as GPT-2 spells bytes
			r, next = rune(256+next), next+1
		}
		vocab[string(r)] = b
	}
	var list []map[string]any
	for i, s := range added {
		list = append(list, map[string]any{"id": 256 + i, "content": s, "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true})
	}
	level := map[string]any{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}
	text, err := json.Marshal(map[string]any{"version": "1.0", "added_tokens": list, "pre_tokenizer": level, "decoder": level, "model": map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}}})
	return string(text), err
}

// writeRun writes tensors in bfloat16: matrices of spread 0.02, norms about 1.
func writeRun(path string, shapes map[string][]int) (err error) {
	const run = 1<<24 + 1
	parts := runtime.NumCPU()
	matrix, norm := make([]byte, 4*run), make([]byte, 2<<16) // the run twice
	var wait sync.WaitGroup
	for p := range parts {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 5))
			for i := p * run / parts; i < (p+1)*run/parts; i++ {
				v := safetensors.ToBF16(float32(0.02 * r.NormFloat64()))
				binary.LittleEndian.PutUint16(matrix[2*i:], v)
				binary.LittleEndian.PutUint16(matrix[2*(run+i):], v)
			}
		})
	}
	wait.Wait()
	r := rand.New(rand.NewPCG(6, 7))
	for i := range len(norm) / 2 {
		binary.LittleEndian.PutUint16(norm[2*i:], safetensors.ToBF16(float32(1+0.1*r.NormFloat64())))
	}
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	head, at := map[string]entry{}, 0
	names := slices.Sorted(maps.Keys(shapes))
	size := func(s []int) int {
		n := 2
		for _, d := range s {
			n *= d
		}
		return n
	}
	for _, n := range names {
		head[n] = entry{"BF16", shapes[n], [2]int{at, at + size(shapes[n])}}
		at += size(shapes[n])
	}
	text, err := json.Marshal(head)
	if err != nil {
		return err
	}
	for len(text)%8 != 0 { // so that the tensors are aligned
		text = append(text, ' ')
	}
	f, err := os.Create(path)
	if err != nil {
		return fail.Wrap(fail.Disk, "write weights", path, err)
	}
	w := bufio.NewWriterSize(f, 1<<20)
	put := func(b []byte) {
		if err == nil {
			_, err = w.Write(b)
		}
	}
	put(binary.LittleEndian.AppendUint64(nil, uint64(len(text))))
	put(text)
	for i, n := range names {
		if strings.Contains(n, "norm") || strings.Contains(n, "ln_q") {
			put(norm[:size(shapes[n])])
			continue
		}
		from := 2 * (i * 104729 % run)
		for left := size(shapes[n]); left > 0; {
			k := min(left, 2*run)
			put(matrix[from : from+k])
			left -= k
		}
	}
	if err == nil {
		err = w.Flush()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	return fail.Wrap(fail.Disk, "write weights", path, err)
}
