package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	openai "github.com/sashabaranov/go-openai"

	"searchloop/internal/fail"
	"searchloop/internal/secret"
)

// TestMalformed: every bad request is a 4xx with a reason, and harms nothing.
func TestMalformed(t *testing.T) {
	s, m, c := toyServer(t, Options{MaxBody: 1 << 20, MaxImages: 2}, nil)
	base := baseURL(s, t)
	user := func(rest string) string { return `{"messages":[{"role":"user","content":"x"}]` + rest + "}" }
	im := func(url string) string {
		return `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"` + url + `"}}]}]}`
	}
	pad, _ := s.tok.ID("<|image_pad|>")
	good := pngURL(16, 16, 1)
	for what, x := range map[string]struct {
		body       string
		code       int
		name, text string
	}{
		"garbage":           {"{not json", 400, "invalid_json", "byte 2"},
		"empty":             {"", 400, "invalid_json", ""},
		"cut":               {`{"messages":[{"role":`, 400, "invalid_json", ""},
		"two values":        {user("") + "{}", 400, "invalid_json", ""},
		"a list":            {"[]", 400, "invalid_type", "array"},
		"null":              {"null", 400, "missing", "messages"},
		"no messages":       {"{}", 400, "missing", "messages"},
		"wrong type":        {user(`,"temperature":"hot"`), 400, "invalid_type", "temperature"},
		"fraction":          {user(`,"max_tokens":1.5`), 400, "invalid_type", "max_tokens"},
		"huge number":       {user(`,"seed":1e99`), 400, "invalid_type", "seed"},
		"messages a string": {`{"messages":"hi"}`, 400, "invalid_type", "messages"},
		"content a number":  {`{"messages":[{"role":"user","content":5}]}`, 400, "invalid_type", "messages[0].content"},
		"content an object": {`{"messages":[{"role":"user","content":{"a":1}}]}`, 400, "invalid_type", "messages[0].content"},
		"a bad part":        {`{"messages":[{"role":"user","content":[5]}]}`, 400, "invalid_type", "messages[0].content"},
		"part of no type":   {`{"messages":[{"role":"user","content":[{}]}]}`, 400, "unsupported", "only text and image_url"},
		"audio":             {`{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}`, 400, "unsupported", "input_audio"},
		"no role":           {`{"messages":[{"content":"x"}]}`, 400, "invalid_messages", "message 1: role"},
		"unknown role":      {`{"messages":[{"role":"user","content":"x"},{"role":"wizard","content":"x"}]}`, 400, "invalid_messages", `message 2: role "wizard"`},
		"assistant image":   {strings.Replace(im(good), "user", "assistant", 1), 400, "invalid_messages", "message 1"},
		"unknown model":     {user(`,"model":"gpt-9"`), 404, "model_not_found", "gpt-9"},
		"two choices":       {user(`,"n":2`), 400, "unsupported", "n is 2"},
		"hot":               {user(`,"temperature":1000`), 400, "out_of_range", "temperature"},
		"cold":              {user(`,"temperature":-1`), 400, "out_of_range", "temperature"},
		"top_p 0":           {user(`,"top_p":0`), 400, "out_of_range", "top_p"},
		"top_p 2":           {user(`,"top_p":2`), 400, "out_of_range", "top_p"},
		"top_k":             {user(`,"top_k":-7`), 400, "out_of_range", "top_k"},
		"no tokens":         {user(`,"max_tokens":0`), 400, "out_of_range", "max_tokens"},
		"too many tokens":   {user(`,"max_tokens":2000`), 400, "context_length_exceeded", "1024"},
		"long prompt":       {`{"messages":[{"role":"user","content":"` + strings.Repeat("7", 1100) + `"}]}`, 400, "context_length_exceeded", "1024"},
		"tops":              {user(`,"logprobs":true,"top_logprobs":99`), 400, "out_of_range", "top_logprobs"},
		"tops alone":        {user(`,"top_logprobs":2`), 400, "contradiction", "logprobs"},
		"empty stop":        {user(`,"stop":""`), 400, "out_of_range", "stop"},
		"stops":             {user(`,"stop":["` + strings.Repeat(`a","`, 20) + `b"]`), 400, "too_many", "stop"},
		"stop an object":    {user(`,"stop":{}`), 400, "invalid_type", ""},
		"penalty":           {user(`,"presence_penalty":1`), 400, "unsupported", "penalties"},
		"bias":              {user(`,"logit_bias":{"5":10}`), 400, "unsupported", "logit_bias"},
		"json mode":         {user(`,"response_format":{"type":"json_object"}`), 400, "unsupported", "json_object"},
		"forced tool":       {user(`,"tool_choice":"required"`), 400, "unsupported", "required"},
		"bad tools":         {user(`,"tools":{"a":1}`), 400, "invalid_messages", "tools"},
		"user calls tools":  {`{"messages":[{"role":"user","tool_calls":[{"function":{"name":"x"}}]}]}`, 400, "unsupported", "tool_calls"},
		"unknown token":     {`{"messages":[{"role":"assistant","token_ids":[99999]}]}`, 400, "invalid_messages", "99999"},
		"sampled image":     {`{"messages":[{"role":"assistant","token_ids":[1,` + strconv.Itoa(int(pad)) + `]}]}`, 400, "invalid_messages", "image"},
		"user token ids":    {`{"messages":[{"role":"user","content":"x","token_ids":[1]}]}`, 400, "invalid_messages", "message 1"},
		"http image":        {im("http://127.0.0.1/x.png"), 400, "invalid_image", "nothing is fetched"},
		"file image":        {im("file:///etc/passwd"), 400, "invalid_image", "nothing is fetched"},
		"no base64":         {im("data:image/png,abc"), 400, "invalid_image", "base64"},
		"bad base64":        {im("data:image/png;base64,@@@"), 400, "invalid_image", "not base64"},
		"empty image":       {im("data:image/png;base64,"), 400, "invalid_image", "empty"},
		"text as image":     {im("data:image/png;base64,aGVsbG8gd29ybGQ="), 400, "invalid_image", "text/plain"},
		"cut image":         {im(good[:len(good)-40]), 400, "invalid_image", "damaged"},
		"huge image":        {im("data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAA6mAAAOpgCAIAAABWyzh4"), 400, "invalid_image", ""},
		"flat image":        {im(pngURL(500, 1, 1)), 400, "invalid_image", "200 times"},
		"no url":            {`{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "missing", "image_url"},
		"three images":      {`{"messages":[{"role":"user","content":[` + strings.Repeat(`{"type":"image_url","image_url":{"url":"`+good+`"}},`, 2) + `{"type":"image_url","image_url":{"url":"` + good + `"}}]}]}`, 400, "too_many_images", "2"},
		"too large":         {user(`,"user":"` + strings.Repeat("x", 1<<20) + `"`), 413, "request_too_large", "1048576"},
	} {
		code, _, data := post(t, base, x.body)
		var e struct {
			Error struct {
				Message, Type string
				Code, Param   *string
			}
		}
		if err := json.Unmarshal(data, &e); err != nil || e.Error.Code == nil || e.Error.Message == "" || e.Error.Type == "" {
			t.Errorf("%s: not an error object: %d %s", what, code, data)
			continue
		}
		if code != x.code || *e.Error.Code != x.name || !strings.Contains(e.Error.Message, x.text) {
			t.Errorf("%s: %d %s", what, code, data)
		}
	}
	if n := m.calls.Load(); n != 0 {
		t.Errorf("the model was called %d times", n)
	}
	if _, err := c.CreateChatCompletion(context.Background(), ask("x", 1, 5)); err != nil {
		t.Error(err)
	}
	var api *openai.APIError
	q := ask("x", 1, 5)
	q.Model = "gpt-9"
	if _, err := c.CreateChatCompletion(context.Background(), q); !errors.As(err, &api) || api.HTTPStatusCode != 404 || api.Code != "model_not_found" {
		t.Errorf("the client's error: %v", err)
	}
}

// slow keeps every Extend waiting until release.
func slow(release chan struct{}) func(*toy) {
	return func(m *toy) {
		m.before = func([]Step) error { <-release; return nil }
	}
}

func TestOverload(t *testing.T) {
	release := make(chan struct{})
	s, _, _ := toyServer(t, Options{MaxActive: 2, MaxQueue: 3}, slow(release))
	base := baseURL(s, t)
	var ok, busy atomic.Int64
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			code, h, data := post(t, base, `{"messages":[{"role":"user","content":"`+strings.Repeat("x", i)+`"}],"max_tokens":3}`)
			switch {
			case code == 200:
				ok.Add(1)
			case code == 429 && h.Get("Retry-After") != "" && bytes.Contains(data, []byte("queue_full")):
				busy.Add(1)
			default:
				t.Errorf("%d %v %s", code, h, data)
			}
		}()
	}
	for busy.Load() < 14 { // two run, one or two are taken while the first Extend waits, three wait
		time.Sleep(time.Millisecond)
	}
	close(release)
	wg.Wait()
	if ok.Load()+busy.Load() != 20 || ok.Load() < 3 {
		t.Errorf("%d answered, %d refused", ok.Load(), busy.Load())
	}
}

// TestClientLeaves: a turn whose client went away leaves the batch, and its cache
// is still of use.
func TestClientLeaves(t *testing.T) {
	s, m, _ := toyServer(t, Options{}, func(m *toy) { m.delay = time.Millisecond; m.endless = true })
	base := baseURL(s, t)
	for _, stream := range []string{"false", "true"} {
		ctx, cancel := context.WithCancel(context.Background())
		r, _ := http.NewRequestWithContext(ctx, "POST", base+"/v1/chat/completions", strings.NewReader(`{"messages":[{"role":"user","content":"x"}],"max_tokens":900,"stream":`+stream+`}`))
		time.AfterFunc(30*time.Millisecond, cancel)
		if resp, err := http.DefaultClient.Do(r); err == nil {
			_, err = new(bytes.Buffer).ReadFrom(resp.Body)
			resp.Body.Close()
			if err == nil {
				t.Error("the turn was not cut off")
			}
		}
		deadline := time.Now().Add(3 * time.Second)
		for {
			queued, running := s.engine.load()
			if queued+running == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatal("the turn still runs")
			}
			time.Sleep(time.Millisecond)
		}
	}
	calls := m.calls.Load()
	time.Sleep(20 * time.Millisecond)
	if m.calls.Load() != calls {
		t.Error("the model is still called")
	}
}

// TestModelFails: an error or a panic of the model ends the turns at hand with
// 500, not the server.
func TestModelFails(t *testing.T) {
	var mode atomic.Int64
	_, _, c := toyServer(t, Options{}, func(m *toy) {
		m.before = func([]Step) error {
			switch mode.Load() {
			case 1:
				return errors.New("out of luck")
			case 2:
				panic("index out of range")
			}
			return nil
		}
	})
	var api *openai.APIError
	for i, text := range []string{"", "out of luck", "index out of range"} {
		mode.Store(int64(i))
		_, err := c.CreateChatCompletion(context.Background(), ask("x", 1, 5))
		if i > 0 && (!errors.As(err, &api) || api.HTTPStatusCode != 500 || !strings.Contains(api.Message, text)) || i == 0 && err != nil {
			t.Errorf("%d: %v", i, err)
		}
		if i > 0 {
			st, err := c.CreateChatCompletionStream(context.Background(), ask("x", 1, 5))
			if err == nil {
				_, err = st.Recv()
				st.Close()
			}
			if !errors.As(err, &api) || api.HTTPStatusCode != 500 {
				t.Errorf("stream %d: %v", i, err)
			}
		}
	}
	mode.Store(0)
	if _, err := c.CreateChatCompletion(context.Background(), ask("x", 1, 5)); err != nil {
		t.Error(err)
	}
}

func TestClose(t *testing.T) {
	s, _, c := toyServer(t, Options{}, func(m *toy) { m.delay = time.Millisecond; m.endless = true })
	base := baseURL(s, t)
	errs := make(chan error, 4)
	for i := range 4 {
		go func() {
			_, err := c.CreateChatCompletion(context.Background(), ask(strings.Repeat("x", i), i, 60))
			errs <- err
		}()
	}
	for _, n := s.engine.load(); n < 4; _, n = s.engine.load() {
		time.Sleep(time.Millisecond)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	for range 4 {
		if err := <-errs; err != nil {
			t.Errorf("a turn in flight was lost: %v", err)
		}
	}
	if _, err := http.Get(base + "/health"); err == nil {
		t.Error("still listening")
	}
	if err := s.engine.submit(&sequence{}); !errors.Is(err, errClosing) {
		t.Error(err)
	}
}

// TestCloseCut: when the time is over the turns left fail with 503.
func TestCloseCut(t *testing.T) {
	s, _, c := toyServer(t, Options{MaxActive: 2}, func(m *toy) { m.delay = 5 * time.Millisecond; m.endless = true })
	errs := make(chan error, 4)
	for i := range 4 {
		go func() {
			_, err := c.CreateChatCompletion(context.Background(), ask(strings.Repeat("x", i), i, 900))
			errs <- err
		}()
	}
	for q, n := s.engine.load(); q+n < 4; q, n = s.engine.load() {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := s.Close(ctx); fail.KindOf(err) != fail.Interrupted || err == nil || !strings.Contains(err.Error(), "4 requests") {
		t.Error(err)
	}
	for range 4 {
		var api *openai.APIError
		if err := <-errs; !errors.As(err, &api) || api.HTTPStatusCode != 503 {
			t.Errorf("%v", err)
		}
	}
}

func TestKey(t *testing.T) {
	s, _, _ := toyServer(t, Options{Key: secret.New("open-sesame")}, nil)
	base := baseURL(s, t)
	for key, want := range map[string]int{"": 401, "Bearer wrong": 401, "Bearer open-sesame": 200} {
		r, _ := http.NewRequest("GET", base+"/v1/models", nil)
		r.Header.Set("Authorization", key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%q: %d", key, resp.StatusCode)
		}
	}
}
