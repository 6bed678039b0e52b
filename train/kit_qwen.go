package train

import (
	"encoding/json"
	"errors"
	"io/fs"

	"searchloop/internal/chat"
	"searchloop/internal/fail"
	"searchloop/internal/picture"
	"searchloop/internal/token"
)

// qwenKit is the real thing: folders of Qwen3-VL and Qwen3.
var qwenKit = kit{load: LoadQwen, loadOn: loadQwen, pictures: qwenPictures, renderer: qwenRenderer}

func qwenRenderer(dir string) (Renderer, int, error) {
	tok, err := token.LoadBPE(dir)
	if err != nil {
		return nil, 0, err
	}
	format, err := chat.FormatOf(dir)
	if err != nil {
		return nil, 0, err
	}
	return func(msgs []chat.Message, tools json.RawMessage) (*chat.Prompt, error) {
		return format.Render(tok, msgs, tools, false)
	}, tok.Size(), nil
}

// qwenPictures reads images as the policy's processor says; a folder without one
// is a policy that sees none.
func qwenPictures(dir string) (PatchReader, error) {
	proc, err := picture.LoadProcessor(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return func([]byte, [3]int32) ([3]int32, []float32, error) {
			return [3]int32{}, nil, fail.New(fail.BadInput, "read image", dir, "the policy has no preprocessor_config.json: it sees no images")
		}, nil
	}
	if err != nil {
		return nil, err
	}
	return func(data []byte, grid [3]int32) ([3]int32, []float32, error) {
		pic, err := picture.Decode(data)
		if err != nil {
			return grid, nil, err
		}
		if grid == [3]int32{} {
			return proc.Patches(pic)
		}
		patches, err := proc.PatchesFor(pic, grid)
		return grid, patches, err
	}, nil
}
