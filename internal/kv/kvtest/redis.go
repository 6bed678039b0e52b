// Package kvtest starts a real Redis for tests.
package kvtest

import (
	"net"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// Redis is a redis-server process of a test's own, on a free loopback port.
type Redis struct {
	URL  string // without the password
	t    *testing.T
	args []string
	cmd  *exec.Cmd
}

// Start starts Redis and ends it with the test. args are added to its command
// line. Without redis-server on the path the test is skipped.
func Start(t *testing.T, args ...string) *Redis {
	t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("redis-server is not installed")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	l.Close()
	r := &Redis{URL: "redis://127.0.0.1:" + strconv.Itoa(port), t: t,
		args: append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--dir", t.TempDir()}, args...)}
	t.Cleanup(r.Stop)
	r.Again()
	return r
}

// Again starts the server once more, with what it held.
func (r *Redis) Again() {
	r.t.Helper()
	r.cmd = exec.Command("redis-server", r.args...)
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	for begin := time.Now(); time.Since(begin) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", r.URL[len("redis://"):]); err == nil {
			answer := make([]byte, 8)
			c.Write([]byte("PING\r\n"))
			c.Read(answer)
			c.Close()
			if string(answer) != "-LOADING" {
				return
			}
		}
	}
	r.t.Fatal("redis-server does not answer")
}

// Stop ends the server.
func (r *Redis) Stop() {
	if r.cmd != nil {
		r.cmd.Process.Kill()
		r.cmd.Wait()
		r.cmd = nil
	}
}
