package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"searchloop/internal/fail"
)

func open(t *testing.T) *Python {
	t.Helper()
	p, err := OpenPython(t.Context())
	if err != nil {
		if fail.KindOf(err) != fail.Usage {
			t.Fatal(err)
		}
		t.Skip("no sandbox here: ", err)
	}
	return p
}

func run(t *testing.T, p *Python, code string) Output {
	t.Helper()
	o, err := p.Run(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestPrograms(t *testing.T) {
	p := open(t)
	for code, want := range map[string]Output{
		"import math, sys\nprint(math.comb(5, 2))\nprint('ß', file=sys.stderr)": {Text: "10\nß\n"},
		"":                        {},
		"import sys; sys.exit(3)": {Exit: 3},
		"open('x','w').write('kept'); print(open('x').read())": {Text: "kept\n"},
		"import os; print(sorted(os.listdir('.')))":            {Text: "[]\n"}, // nothing is left of the program before
		"print('x' * 100000)":                                  {Text: strings.Repeat("x", MaxOutput), Cut: true},
	} {
		if got := run(t, p, code); got != want {
			t.Errorf("%.60q: %+.200v", code, got)
		}
	}
	if o := run(t, p, "1/0"); o.Exit != 1 || !strings.Contains(o.Text, "ZeroDivisionError") {
		t.Errorf("%+v", o)
	}
}

// G27: programs do not see each other's output, and what takes too long is gone.
func TestG27ProgramsAreApart(t *testing.T) {
	p := open(t)
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			if o := run(t, p, fmt.Sprintf("import time\nfor _ in range(3):\n  print(%d); time.sleep(0.02)", i)); o.Text != strings.Repeat(fmt.Sprintln(i), 3) {
				t.Errorf("%d printed %q", i, o.Text)
			}
		})
	}
	wg.Wait()
	p.seconds = 1
	begin := time.Now()
	o := run(t, p, "import os, time\nos.fork()\ntime.sleep(60)")
	if !o.TimedOut || o.Exit == 0 || time.Since(begin) > 20*time.Second {
		t.Errorf("%+v after %s", o, time.Since(begin))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Run(ctx, "print(1)"); fail.KindOf(err) != fail.Interrupted {
		t.Error(err)
	}
}

// A program reaches no network, no file of ours, no key, and cannot eat the machine.
func TestProgramsReachNothing(t *testing.T) {
	p := open(t)
	t.Setenv("SERPER_API_KEY", "canary-sandbox")
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("canary-file"), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var seen atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			seen.Add(1)
			c.Close()
		}
	}()
	home, _ := os.UserHomeDir()
	tries := map[string]string{
		"loopback":    fmt.Sprintf("import socket; socket.create_connection(('127.0.0.1', %d), 1)", l.Addr().(*net.TCPAddr).Port),
		"internet":    "import socket; socket.create_connection(('1.1.1.1', 53), 1)",
		"our file":    fmt.Sprintf("print(open(%q).read())", secret),
		"passwords":   "print(open('/etc/shadow').read())",
		"home":        fmt.Sprintf("import os; assert os.listdir(%q)", filepath.Join(home, "go")),
		"write":       "open('/usr/x', 'w')",
		"write root":  "open('/x', 'w')",
		"processes":   "import os; assert len([p for p in os.listdir('/proc') if p.isdigit()]) > 5",
		"mount":       "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, None) == 0",
		"memory":      "x = bytearray(3 << 30)",
		"disk":        "f = open('big', 'wb')\nfor _ in range(200): f.write(bytes(1 << 20))",
		"environment": "import os; assert any('canary' in v or 'KEY' in k for k, v in os.environ.items())",
	}
	for name, code := range tries {
		if o := run(t, p, code); o.Exit == 0 || strings.Contains(o.Text, "canary-file") {
			t.Errorf("%s: a program got through: %+v", name, o)
		}
	}
	if n := seen.Load(); n != 0 {
		t.Errorf("a listener saw %d connections", n)
	}
}

// Without bubblewrap nothing is run, and it is said why.
func TestNoSandbox(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := OpenPython(t.Context()); fail.KindOf(err) != fail.Usage || !strings.Contains(err.Error(), "bubblewrap is not installed") {
		t.Error(err)
	}
}
