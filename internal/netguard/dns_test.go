package netguard

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// names is a DNS server on loopback: what a name's n-th question (from 0) of a
// family is answered with.
type names map[string]func(n int) []string

// resolver asks a DNS server that knows the names.
func (n names) resolver(t *testing.T) *net.Resolver {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go n.serve(conn)
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
	}}
}

func (n names) serve(conn net.PacketConn) {
	var mu sync.Mutex
	asked := map[dnsmessage.Question]int{}
	buf := make([]byte, 1500)
	for {
		size, from, err := conn.ReadFrom(buf)
		if err != nil {
			return
		}
		var m dnsmessage.Message
		if m.Unpack(buf[:size]) != nil || len(m.Questions) != 1 {
			continue
		}
		q := m.Questions[0]
		out := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, RecursionAvailable: true}, Questions: m.Questions}
		answers, ok := n[strings.ToLower(q.Name.String())]
		if !ok {
			out.RCode = dnsmessage.RCodeNameError
		} else {
			mu.Lock()
			list := answers(asked[q])
			asked[q]++
			mu.Unlock()
			for _, text := range list {
				a := netip.MustParseAddr(text)
				head := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: q.Class, TTL: 0}
				switch {
				case a.Is4() && q.Type == dnsmessage.TypeA:
					out.Answers = append(out.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AResource{A: a.As4()}})
				case a.Is6() && q.Type == dnsmessage.TypeAAAA:
					out.Answers = append(out.Answers, dnsmessage.Resource{Header: head, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
				}
			}
		}
		if b, err := out.Pack(); err == nil {
			conn.WriteTo(b, from)
		}
	}
}
