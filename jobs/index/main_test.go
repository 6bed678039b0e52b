package main

import (
	"testing"

	"github.com/alecthomas/kong"
)

// What is said of the encoder of --adopt reaches it.
func TestEncoderFlags(t *testing.T) {
	var c command
	p, err := kong.New(&c)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Parse([]string{"--encoder", "http://host:1", "--encoder-model", "m", "--query-prefix", "q: ", "--passage-prefix", "p: "}); err != nil {
		t.Fatal(err)
	}
	o := c.options()
	if s := o.Server; o.Encoder != "http://host:1" || s.Model != "m" || *s.Override.QueryPrefix != "q: " || *s.Override.PassagePrefix != "p: " {
		t.Errorf("got %+v", o)
	}
}
