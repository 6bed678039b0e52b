package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
)

// peer is a running peer.py that does a turn for each line it is sent.
type peer struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   *bufio.Reader
	first []byte // the line it began with
}

func start(python string, args ...string) (*peer, error) {
	p := &peer{cmd: exec.Command(python, args...)}
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewReader(out)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if p.first, err = p.out.ReadBytes('\n'); err != nil {
		p.close()
		return nil, fmt.Errorf("%s %v: %w", python, args, err)
	}
	return p, nil
}

// turn gives seconds and seconds of processor time.
func (p *peer) turn() (wall, cpu float64, err error) {
	if _, err = io.WriteString(p.in, "\n"); err != nil {
		return 0, 0, err
	}
	_, err = fmt.Fscanln(p.out, &wall, &cpu)
	return wall, cpu, err
}

func (p *peer) close() {
	p.in.Close()
	p.cmd.Wait()
}
