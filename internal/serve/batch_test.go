package serve

import (
	"context"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"
)

// turn asks and returns what a client can see of the turn.
func turn(t testing.TB, c *openai.Client, q openai.ChatCompletionRequest) [2]any {
	t.Helper()
	q.LogProbs = true
	r, err := c.CreateChatCompletion(context.Background(), q)
	if err != nil {
		t.Error(err)
		return [2]any{}
	}
	return [2]any{r.Choices[0].Message.Content, r.Choices[0].LogProbs.Content}
}

// TestSameAlone: a request with a seed gets the same turn alone on a fresh server
// and among many others, whatever they share, with any batch and prefill size.
func TestSameAlone(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var qs []openai.ChatCompletionRequest
	for i := range 80 {
		q := ask(randomText(r, 1+r.IntN(200)), r.IntN(4), 1+r.IntN(40))
		if i%4 == 0 && i > 0 {
			q.Messages = qs[i-1].Messages // another sample of the same prompt
		}
		if i%4 == 1 && i > 4 {
			q.Messages = append(append([]openai.ChatCompletionMessage(nil), qs[i-3].Messages...),
				openai.ChatCompletionMessage{Role: "assistant", Content: "river"}, openai.ChatCompletionMessage{Role: "user", Content: "é"})
		}
		if i%6 == 2 {
			q.Messages = []openai.ChatCompletionMessage{{Role: "user", MultiContent: []openai.ChatMessagePart{
				{Type: "image_url", ImageURL: &openai.ChatMessageImageURL{URL: pngURL(16+8*(i%3), 24, uint8(i%2))}}, {Type: "text", Text: "the town"}}}}
		}
		q.TopP = []float32{0, 0.9}[i%2]
		qs = append(qs, q)
	}
	_, _, alone := toyServer(t, Options{MaxActive: 1, KVTokens: 1}, nil)
	want := make([][2]any, len(qs))
	for i, q := range qs {
		want[i] = turn(t, alone, q)
	}
	for _, o := range []Options{{}, {MaxActive: 7, Prefill: 9}, {KVTokens: 2500, Prefill: 50}} {
		_, m, c := toyServer(t, o, func(m *toy) { m.delay = 200 * time.Microsecond })
		var wg sync.WaitGroup
		for i, q := range qs {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if got := turn(t, c, q); !reflect.DeepEqual(got, want[i]) {
					t.Errorf("%+v: request %d got another turn among others:\n%v\n%v", o, i, got[0], want[i][0])
				}
			}()
		}
		wg.Wait()
		t.Logf("%+v: %d calls, %d tokens read", o, m.calls.Load(), m.read.Load())
	}
}

// TestGroup: the samples of a prompt that come together read it once.
func TestGroup(t *testing.T) {
	s, m, c := toyServer(t, Options{Prefill: 64}, func(m *toy) { m.delay = time.Millisecond })
	prompt := randomText(rand.New(rand.NewPCG(1, 1)), 300)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			turn(t, c, ask(prompt, i, 8))
		}()
	}
	wg.Wait()
	n := len(s.tok.Encode(prompt)) + 10
	if read := int(s.meter.prompt.Load()); read > n+16 {
		t.Errorf("%d prompt tokens read for 16 samples of a prompt of %d", read, n)
	}
	if m.calls.Load() > 200 {
		t.Errorf("%d calls", m.calls.Load())
	}
}

// TestMemory: kept caches stay within their bound, and what is dropped is
// released.
func TestMemory(t *testing.T) {
	s, _, c := toyServer(t, Options{KVTokens: 1500}, nil)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range 40 {
		turn(t, c, ask(randomText(r, 100), i, 20))
		if n := s.meter.kept.Load(); n > 1500 {
			t.Fatalf("%d tokens kept", n)
		}
	}
	if n := s.meter.kept.Load(); n < 500 {
		t.Errorf("only %d tokens kept", n)
	}
}
