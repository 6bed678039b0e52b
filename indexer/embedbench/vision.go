//go:build cuda

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"searchloop/internal/bench"
	"searchloop/internal/fail"
	"searchloop/internal/model/eva"
	"searchloop/internal/picture"
	"searchloop/internal/safetensors"
	"searchloop/internal/tensor"
)

// vision is the name of the figure.
const vision = "embed images, Jina-CLIP-v2's vision tower"

const (
	photos = 256  // different files
	views  = 2048 // images of a turn
)

// embedImages measures the tower of Jina-CLIP-v2's shape with random weights, from the
// bytes of JPEG files of 640×480 to vectors.
func (m *meter) embedImages() error {
	dir := filepath.Join(m.dir, "clip")
	if err := writeTower(dir); err != nil {
		return err
	}
	files, err := writePhotos(filepath.Join(m.dir, "photos"))
	if err != nil {
		return err
	}
	tower, err := eva.LoadOn(&tensor.Shared{Encoding: m.be}, dir)
	if err != nil {
		return err
	}
	square, err := picture.LoadSquare(dir)
	if err != nil {
		return err
	}
	turn := func(n int) (vecs []float32, err error) {
		vecs = make([]float32, n*tower.Dim())
		var wait sync.WaitGroup
		var mu sync.Mutex
		room := make(chan struct{}, 4*runtime.NumCPU())
		for i := range n {
			room <- struct{}{}
			wait.Go(func() {
				defer func() { <-room }()
				v, e := one(tower, square, files[i%len(files)])
				if e != nil {
					mu.Lock()
					err = e
					mu.Unlock()
				}
				copy(vecs[i*tower.Dim():], v)
			})
		}
		wait.Wait()
		return vecs, err
	}
	some, err := turn(16)
	if err != nil {
		return err
	}
	text, err := json.Marshal(some)
	if err == nil {
		err = os.WriteFile(filepath.Join(m.dir, "vectors.json"), text, 0o666)
	}
	if err != nil {
		return err
	}
	best := math.Inf(1)
	for range *times {
		start := time.Now()
		if _, err := turn(views); err != nil {
			return err
		}
		best = min(best, time.Since(start).Seconds())
		fmt.Fprintf(os.Stderr, "%.2f s\n", time.Since(start).Seconds())
	}
	row := bench.Row{Name: vision, Unit: "images/s", Ours: views / best, Bound: 1.5,
		Note: fmt.Sprintf("%d JPEG files of 640×480, decoding included; bfloat16, %.1f %% of 989 TFLOP/s", views, 100*views*towerFlop/best/peak)}
	if why := bench.Missing(*python, "torch", "timm", "PIL"); why != "" {
		row.Note += "; " + why
	} else {
		var v struct {
			Rate, Cosine float64
			Peer         string
		}
		cmd := exec.Command(*python, *script, "images", dir, filepath.Join(m.dir, "photos"), filepath.Join(m.dir, "vectors.json"), fmt.Sprint(views))
		cmd.Stderr = os.Stderr
		text, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			row.Note += "; peer not measured: " + err.Error()
		} else {
			row.Peer, row.PeerName = v.Rate, v.Peer
			row.Note += fmt.Sprintf("; cosine to the peer's at least %.5f", v.Cosine)
		}
	}
	m.rows = append(m.rows, row)
	return tower.Close()
}

func one(tower *eva.Tower, square picture.Square, file []byte) ([]float32, error) {
	pic, err := picture.Decode(file)
	if err != nil {
		return nil, err
	}
	patches, err := square.Patches(pic, tower.Patch())
	if err != nil {
		return nil, err
	}
	return tower.Encode(patches)
}

// The tower of Jina-CLIP-v2.
const (
	towerWidth, towerLayers, towerInner, towerRows = 1024, 24, 2730, 1297
	towerFlop                                      = 2*towerLayers*towerRows*(4*towerWidth*towerWidth+3*towerWidth*towerInner) + 4*towerLayers*towerRows*towerRows*towerWidth
)

// writeTower makes a folder with the vision tower alone.
func writeTower(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"config.json": `{"model_type": "jina_clip", "add_projections": false, "vision_config": {"embed_dim": 1024, "width": 1024, "image_size": 512, "patch_size": 14, "layers": 24, "head_width": 64,
 "mlp_ratio": 2.6667, "qkv_bias": true, "post_norm": false, "rope_embeddings": true, "pt_hw_seq_len": 16, "intp_freq": true, "naive_swiglu": true, "subln": true, "proj_type": null, "ls_init_value": null}}`,
		"preprocessor_config.json": `{"fill_color": 0, "image_processor_type": "JinaCLIPImageProcessor", "interpolation": "bicubic", "mean": [0.48145466, 0.4578275, 0.40821073],
 "processor_class": "JinaCLIPProcessor", "resize_mode": "shortest", "size": 512, "std": [0.26862954, 0.26130258, 0.27577711]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			return err
		}
	}
	all, add, norm := weights()
	add("vision_model.cls_token", 0, 0.02, 1, 1, towerWidth)
	add("vision_model.pos_embed", 0, 0.02, 1, towerRows, towerWidth)
	add("vision_model.patch_embed.proj.weight", 0, 0.04, towerWidth, 3, 14, 14)
	add("vision_model.patch_embed.proj.bias", 0, 0.02, towerWidth)
	linear := func(name string, out, in int, bias bool) {
		add(name+".weight", 0, 1/math.Sqrt(float64(in)), out, in)
		if bias {
			add(name+".bias", 0, 0.1, out)
		}
	}
	norm("vision_model.norm", towerWidth)
	for i := range towerLayers {
		at := fmt.Sprintf("vision_model.blocks.%d.", i)
		norm(at+"norm1", towerWidth)
		norm(at+"norm2", towerWidth)
		norm(at+"attn.inner_attn_ln", towerWidth)
		norm(at+"mlp.ffn_ln", towerInner)
		for _, x := range "qkv" {
			linear(at+"attn."+string(x)+"_proj", towerWidth, towerWidth, false)
		}
		add(at+"attn.q_bias", 0, 0.1, towerWidth)
		add(at+"attn.v_bias", 0, 0.1, towerWidth)
		linear(at+"attn.proj", towerWidth, towerWidth, true)
		linear(at+"mlp.w1", towerInner, towerWidth, true)
		linear(at+"mlp.w2", towerInner, towerWidth, true)
		linear(at+"mlp.w3", towerWidth, towerInner, true)
	}
	return safetensors.Write(filepath.Join(dir, safetensors.FileName), *all, nil)
}

// weights collects random tensors: any, and those of norms.
func weights() (all *[]safetensors.Tensor, add func(name string, base, spread float64, dims ...int), norm func(name string, n int)) {
	all = new([]safetensors.Tensor)
	add = func(name string, base, spread float64, dims ...int) {
		r := rand.New(rand.NewPCG(uint64(len(*all)), 1))
		n := 1
		for _, d := range dims {
			n *= d
		}
		*all = append(*all, safetensors.Tensor{Name: name, DType: "BF16", Shape: dims, Values: func() []float32 {
			x := make([]float32, n)
			for i := range x {
				x[i] = float32(base + spread*r.NormFloat64())
			}
			return x
		}})
	}
	norm = func(name string, n int) { add(name+".weight", 1, 0.1, n); add(name+".bias", 0, 0.1, n) }
	return all, add, norm
}

// writePhotos makes JPEG files of smooth patches of colour with grain, some 60 kB each.
func writePhotos(dir string) ([][]byte, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, err
	}
	files, errs := make([][]byte, photos), make([]error, photos)
	var wait sync.WaitGroup
	for i := range photos {
		wait.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			im := image.NewRGBA(image.Rect(0, 0, 640, 480))
			var f [9]float64
			for k := range f {
				f[k] = r.Float64() * 0.05
			}
			for y := range 480 {
				for x := range 640 {
					v := func(k int) uint8 {
						return uint8(128 + 60*math.Sin(f[3*k]*float64(x)+f[3*k+1]*float64(y)) + 40*math.Sin(f[3*k+2]*float64(x*y)/200) + 20*(r.Float64()-0.5))
					}
					im.SetRGBA(x, y, color.RGBA{v(0), v(1), v(2), 255})
				}
			}
			var b bytes.Buffer
			if errs[i] = jpeg.Encode(&b, im, &jpeg.Options{Quality: 90}); errs[i] == nil {
				files[i] = b.Bytes()
				errs[i] = os.WriteFile(filepath.Join(dir, fmt.Sprintf("%04d.jpg", i)), files[i], 0o666)
			}
		})
	}
	wait.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, fail.Wrap(fail.Disk, "write photos", dir, err)
		}
	}
	return files, nil
}
