// Command backend is the other side of the rollout benchmark: a policy server, a
// judge and a search server whose answers cost nothing but time. It runs in a
// process of its own, and its processor time is told apart.
//
//	backend --policy 200ms --jitter 50ms --tool 50ms --errors 0.05 --hangs 0.01
//
// A policy turn is a search until the conversation has --turns-1 assistant's turns,
// then an answer. The address is the first line of standard output.
//
// It shares the processors with what is measured, so that it does no more than it must:
// every response is made beforehand, and requests are taken apart by hand, for no more
// than their length, their address and what the answer depends on. One goroutine a
// connection; a request's body has a length.
package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

var (
	listen = flag.String("listen", "127.0.0.1:0", "address")
	policy = flag.Duration("policy", 200*time.Millisecond, "latency of a turn")
	jitter = flag.Duration("jitter", 50*time.Millisecond, "added to or taken from it")
	tool   = flag.Duration("tool", 50*time.Millisecond, "latency of a search")
	turns  = flag.Int("turns", 3, "turns of a trajectory")
	errs   = flag.Float64("errors", 0, "share of turns and verdicts that are answered by status 500")
	hangs  = flag.Float64("hangs", 0, "share that is never answered")
)

const (
	search  = `<think>I look it up.</think>\n<tool_call>{\"name\": \"text_search\", \"arguments\": {\"query_list\": [\"the river through Vorna\"]}}</tool_call>`
	answer  = `<think>The passage names it.</think>\n<answer>Lim</answer>`
	passage = `{"document":{"id":"7","contents":"Vorna\nVorna is a town of nine thousand on both banks of the Lim, which the old road crosses by a bridge of five arches."},"score":0.8}`
)

// response is a whole one of status 200.
func response(text string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
}

// turn is a chat completion that says text.
func turn(text string) []byte {
	return response(fmt.Sprintf(`{"object":"chat.completion","model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":300,"completion_tokens":40,"total_tokens":340}}`, text))
}

var (
	calls, ends, verdict = turn(search), turn(answer), turn("No")
	found                = response(fmt.Sprintf(`{"result":[[%s,%s,%s]]}`, passage, passage, passage))
	models               = response(`{"data":[{"id":"bench"}]}`)
	failed               = []byte("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
	missing              = []byte("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

	requests atomic.Int64
)

func main() {
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1)
	}
	fmt.Println("http://" + l.Addr().String())
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "backend:", err)
			os.Exit(1)
		}
		go serve(c)
	}
}

// serve answers the requests of a connection until it is closed.
func serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	var body []byte
	for {
		path, n, err := head(in)
		if err != nil {
			return
		}
		body = append(body[:0], make([]byte, n)...)
		if _, err := io.ReadFull(in, body); err != nil {
			return
		}
		text, hang := reply(path, body)
		if hang {
			_, _ = in.ReadByte() // until the client gives up
			return
		}
		if _, err := c.Write(text); err != nil {
			return
		}
	}
}

// head reads the head of a request: its address and the length of its body.
func head(in *bufio.Reader) (path string, n int, err error) {
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return "", 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		name, value, _ := bytes.Cut(line, []byte(":"))
		switch {
		case first:
			_, rest, _ := bytes.Cut(line, []byte(" "))
			at, _, _ := bytes.Cut(rest, []byte(" "))
			path = string(at)
		case len(line) == 0:
			return path, n, nil
		case len(name) == len("content-length") && bytes.EqualFold(name, []byte("content-length")):
			if n, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil || n < 0 || n > 64<<20 {
				return "", 0, fmt.Errorf("a body of %q bytes", value)
			}
		}
	}
}

// reply waits as long as the answer takes, and gives it.
func reply(path string, body []byte) (text []byte, hang bool) {
	switch path {
	case "/v1/models":
		return models, false
	case "/requests":
		return response(fmt.Sprintln(requests.Load())), false
	case "/retrieve":
		time.Sleep(*tool)
		return found, false
	case "/v1/chat/completions":
	default:
		return missing, false
	}
	requests.Add(1)
	switch p := rand.Float64(); {
	case p < *errs:
		return failed, false
	case p < *errs+*hangs:
		return nil, true
	}
	switch {
	case bytes.Contains(body, []byte("CANDIDATES")):
		text = verdict
	case bytes.Count(body, []byte(`"role":"assistant"`))+bytes.Count(body, []byte(`"role": "assistant"`)) < *turns-1:
		text = calls
	default:
		text = ends
	}
	time.Sleep(*policy + time.Duration((2*rand.Float64()-1)*float64(*jitter)))
	return text, false
}
