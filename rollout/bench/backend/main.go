//go:build linux

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
// every response is made beforehand, requests are taken apart by hand, for no more
// than their length, their address and what the answer depends on, and one thread looks
// after all connections each millisecond: what came by then is read, what is due is sent.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

var (
	port   = flag.Int("port", 0, "on 127.0.0.1; 0: a free one")
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

	requests int // turns and verdicts that were asked for
)

func main() {
	flag.Parse()
	runtime.LockOSThread()
	debug.SetGCPercent(-1) // buffers are used again
	s := server{conns: map[int32]*conn{}, began: time.Now()}
	fmt.Fprintln(os.Stderr, "backend:", s.run())
	os.Exit(1)
}

// conn is one connection; its descriptor may be another one's later.
type conn struct {
	fd int
	in []byte // of a request, as far as it came
}

// due is a response that waits for its time.
type due struct {
	to   *conn
	text []byte
}

// server is all connections, and what is due at each millisecond from now: a wheel.
type server struct {
	epoll  int
	listen int
	conns  map[int32]*conn
	began  time.Time
	at     int64 // milliseconds until which everything was sent
	wheel  [1 << 13][]due
	spare  [][]byte // buffers of closed connections
}

// run serves until it cannot.
func (s *server) run() (err error) {
	if s.listen, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC, 0); err != nil {
		return err
	}
	if err := syscall.SetsockoptInt(s.listen, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return err
	}
	if err := syscall.Bind(s.listen, &syscall.SockaddrInet4{Port: *port, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if err := syscall.Listen(s.listen, 1<<14); err != nil {
		return err
	}
	name, err := syscall.Getsockname(s.listen)
	if err != nil {
		return err
	}
	if s.epoll, err = syscall.EpollCreate1(syscall.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if err := s.watch(s.listen); err != nil {
		return err
	}
	fmt.Printf("http://127.0.0.1:%d\n", name.(*syscall.SockaddrInet4).Port)
	events := make([]syscall.EpollEvent, 4096)
	for {
		n, err := s.wait(events)
		if err != nil {
			return err
		}
		for _, e := range events[:n] {
			if int(e.Fd) == s.listen {
				if err := s.accept(); err != nil {
					return err
				}
			} else if c := s.conns[e.Fd]; !s.read(c) {
				s.close(c)
			}
		}
		s.send()
	}
}

func (s *server) watch(fd int) error {
	return syscall.EpollCtl(s.epoll, syscall.EPOLL_CTL_ADD, fd, &syscall.EpollEvent{Events: syscall.EPOLLIN, Fd: int32(fd)})
}

// wait sleeps until the next millisecond begins, then takes what has come. A thread that
// waited for each request would be woken by the client's system call that sends it,
// which a server on a machine of its own does not cost a client. A search takes half a
// millisecond more for it. The runtime is not told: it would hand the processor over and
// back each time, and nothing else runs here.
func (s *server) wait(events []syscall.EpollEvent) (int, error) {
	next := s.began.Add(time.Duration(s.now()+1) * time.Millisecond)
	if left := syscall.NsecToTimespec(int64(time.Until(next))); left.Nsec > 0 {
		_, _, _ = syscall.RawSyscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&left)), 0, 0)
	}
	n, _, errno := syscall.RawSyscall6(syscall.SYS_EPOLL_PWAIT, uintptr(s.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if errno == syscall.EINTR {
		return 0, nil
	}
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// now is in milliseconds.
func (s *server) now() int64 { return time.Since(s.began).Milliseconds() }

func (s *server) accept() error {
	for {
		fd, _, err := syscall.Accept4(s.listen, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		switch err {
		case nil:
		case syscall.EAGAIN:
			return nil
		case syscall.EINTR, syscall.ECONNABORTED:
			continue
		default:
			return err
		}
		if err := syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1); err != nil {
			return err
		}
		c := &conn{fd: fd}
		if n := len(s.spare); n > 0 {
			c.in, s.spare = s.spare[n-1][:0], s.spare[:n-1]
		} else {
			c.in = make([]byte, 0, 8<<10)
		}
		s.conns[int32(fd)] = c
		if err := s.watch(fd); err != nil {
			return err
		}
	}
}

func (s *server) close(c *conn) {
	delete(s.conns, int32(c.fd))
	syscall.Close(c.fd)
	s.spare = append(s.spare, c.in)
	c.fd = -1
}

// read reads what has come, and answers a request when it is whole; false: the
// connection is over.
func (s *server) read(c *conn) bool {
	if len(c.in) == cap(c.in) {
		c.in = append(c.in, 0)[:len(c.in)]
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_READ, uintptr(c.fd), uintptr(unsafe.Pointer(&c.in[:len(c.in)+1][len(c.in)])), uintptr(cap(c.in)-len(c.in)))
	switch {
	case errno == syscall.EAGAIN || errno == syscall.EINTR:
		return true
	case errno != 0 || n == 0:
		return false
	}
	c.in = c.in[:len(c.in)+int(n)]
	to := bytes.Index(c.in, []byte("\r\n\r\n"))
	if to < 0 {
		return true
	}
	path, length := head(c.in[:to])
	if body := c.in[to+4:]; length < 0 || len(body) > length {
		return false
	} else if len(body) == length {
		text, after := reply(string(path), body)
		s.later(c, text, after)
		c.in = c.in[:0]
	}
	return true
}

// head reads the head of a request: its address and the length of its body, -1 for one
// that has none that is known.
func head(text []byte) (path []byte, length int) {
	line, rest, _ := bytes.Cut(text, []byte("\r\n"))
	_, line, _ = bytes.Cut(line, []byte(" "))
	path, _, _ = bytes.Cut(line, []byte(" "))
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		const name = "content-length:"
		if len(line) > len(name) && line[0]|0x20 == 'c' && bytes.EqualFold(line[:len(name)], []byte(name)) {
			n, err := strconv.Atoi(string(bytes.TrimSpace(line[len(name):])))
			if err != nil || n < 0 || n > 64<<20 {
				return nil, -1
			}
			length = n
		}
	}
	return path, length
}

// later sends a response after so long; nil is never sent.
func (s *server) later(c *conn, text []byte, after time.Duration) {
	if text == nil {
		return
	}
	at := (time.Since(s.began) + after).Milliseconds()
	if after == 0 || at <= s.at {
		s.write(due{c, text})
		return
	}
	slot := &s.wheel[min(at, s.at+int64(len(s.wheel))-1)%int64(len(s.wheel))]
	*slot = append(*slot, due{c, text})
}

// send sends what is due.
func (s *server) send() {
	for now := s.now(); s.at < now; {
		s.at++
		slot := &s.wheel[s.at%int64(len(s.wheel))]
		for _, d := range *slot {
			s.write(d)
		}
		clear(*slot)
		*slot = (*slot)[:0]
	}
}

func (s *server) write(d due) {
	if d.to.fd < 0 {
		return // the client gave up
	}
	n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, uintptr(d.to.fd), uintptr(unsafe.Pointer(&d.text[0])), uintptr(len(d.text)))
	if errno != 0 || int(n) < len(d.text) {
		s.close(d.to)
	}
}

// reply is the answer to a request, and how long it takes; nil for none.
func reply(path string, body []byte) (text []byte, after time.Duration) {
	switch path {
	case "/v1/models":
		return models, 0
	case "/requests":
		return response(fmt.Sprintln(requests)), 0
	case "/retrieve":
		return found, *tool
	case "/v1/chat/completions":
	default:
		return missing, 0
	}
	requests++
	switch p := rand.Float64(); {
	case p < *errs:
		return failed, 0
	case p < *errs+*hangs:
		return nil, 0
	}
	switch {
	case bytes.Contains(body, []byte("CANDIDATES")):
		text = verdict
	case bytes.Count(body, []byte(`"role":"assistant"`))+bytes.Count(body, []byte(`"role": "assistant"`)) < *turns-1:
		text = calls
	default:
		text = ends
	}
	return text, *policy + time.Duration((2*rand.Float64()-1)*float64(*jitter))
}
