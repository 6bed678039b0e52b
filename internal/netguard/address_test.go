package netguard

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"code.dny.dev/ssrf"

	"searchloop/internal/retry"
)

// watched is a server on loopback that counts the connections it sees, on IPv4 and,
// where there is one, on IPv6.
type watched struct {
	port  string
	conns atomic.Int64
}

func watch(t *testing.T) *watched {
	t.Helper()
	w := &watched{}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, w.port, _ = net.SplitHostPort(l.Addr().String())
	s := &http.Server{
		Handler: http.HandlerFunc(func(out http.ResponseWriter, _ *http.Request) { fmt.Fprint(out, "secrets of the host") }),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				w.conns.Add(1)
			}
		},
	}
	t.Cleanup(func() { s.Close() })
	go s.Serve(l)
	if l6, err := net.Listen("tcp6", "[::1]:"+w.port); err == nil {
		go s.Serve(l6)
	}
	return w
}

// unrouted is a public address that nobody has.
const unrouted = "2c0f:ffff:ffff::1"

// F23: no private address is ever connected to, however it is written, resolved or
// redirected to.
func TestF23PrivateAddressesAreNotDialled(t *testing.T) {
	w := watch(t)
	always := func(a ...string) func(int) []string { return func(int) []string { return a } }
	resolver := names{
		"loop.test.":     always("127.0.0.1"),
		"loop6.test.":    always("::1"),
		"mapped.test.":   always("::ffff:127.0.0.1"),
		"metadata.test.": always("169.254.169.254"),
		"both.test.":     always(unrouted, "127.0.0.1"),
		"flips.test.": func(n int) []string {
			if n%2 == 0 {
				return []string{unrouted}
			}
			return []string{"127.0.0.1", "::1"}
		},
	}.resolver(t)
	// Any port, so that the address alone decides.
	c := build(Options{Resolver: resolver, Timeout: 2 * time.Second}, ssrf.WithAnyPort())
	hop := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		http.Redirect(out, r, r.URL.Query().Get("to"), http.StatusFound)
	}))
	defer hop.Close()
	at := strings.TrimPrefix(hop.URL, "http://")
	hopping := build(Options{Resolver: resolver, Timeout: 2 * time.Second, Allow: []string{at}}, ssrf.WithAnyPort())

	hosts := []string{"127.0.0.1", "localhost", "127.1", "2130706433", "0x7f000001", "0.0.0.0", "[::1]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::127.0.0.1]", "[64:ff9b::7f00:1]",
		"[64:ff9b:1::7f00:1]", "[2002:7f00:1::1]", "[2001:0:7f00:1::]", "100.64.0.1", "169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.0.1", "192.0.0.192", "100.100.100.200",
		"[fe80::1]", "[fd00:ec2::254]", "[fec0::1]", "[ff02::1]", "255.255.255.255", wireServer,
		"loop.test", "loop6.test", "mapped.test", "metadata.test", "LOOP.test."}
	for _, h := range hosts {
		for name, get := range map[string]func(string) (*Body, *retry.Fault){
			"directly": func(u string) (*Body, *retry.Fault) { return c.Get(t.Context(), u) },
			"by a redirect": func(u string) (*Body, *retry.Fault) {
				return hopping.Get(t.Context(), hop.URL+"/?to="+u)
			},
		} {
			b, f := get("http://" + h + ":" + w.port + "/latest")
			switch {
			case f == nil:
				t.Errorf("%s %s: fetched %q", h, name, b.Data)
			case f.Class == Blocked:
			case f.Class == NoHost && (h == "2130706433" || h == "0x7f000001" || h == "127.1"): // no address for Go
			default:
				t.Errorf("%s %s: %v", h, name, f)
			}
		}
	}
	// Names that are public and private at once, or public when looked at and private
	// when used. The public address may leave the connection hanging.
	soon := build(Options{Resolver: resolver, Timeout: 400 * time.Millisecond}, ssrf.WithAnyPort())
	for _, h := range []string{"both.test", "flips.test", "flips.test", "flips.test", "flips.test"} {
		if b, f := soon.Get(t.Context(), "http://"+h+":"+w.port); f == nil {
			t.Errorf("%s: fetched %q", h, b.Data)
		}
	}
	if n := w.conns.Load(); n != 0 {
		t.Errorf("the listener saw %d connections", n)
	}
	// The same listener is reached by who is allowed to.
	open := New(Options{Resolver: resolver, Allow: []string{"LOOP.test:" + w.port}})
	if b, f := open.Get(t.Context(), "http://loop.test:"+w.port); f != nil || string(b.Data) != "secrets of the host" || w.conns.Load() != 1 {
		t.Errorf("an allowed host: %v, %d connections", f, w.conns.Load())
	}
}

// A proxy would be dialled in the place of the page: the environment's is not used.
func TestNoProxyIsUsed(t *testing.T) {
	w := watch(t)
	for _, k := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "ALL_PROXY"} {
		t.Setenv(k, "http://127.0.0.1:"+w.port)
	}
	c := New(Options{Resolver: names{}.resolver(t)})
	for _, u := range []string{"http://page.test/", "https://page.test/"} {
		if _, f := c.Get(t.Context(), u); f == nil || f.Class != NoHost {
			t.Errorf("%s: %v", u, f)
		}
	}
	if n := w.conns.Load(); n != 0 {
		t.Errorf("the proxy saw %d connections", n)
	}
}

func TestWhatIsNoWebAddress(t *testing.T) {
	c := New(Options{Resolver: names{"mail.test.": func(int) []string { return []string{unrouted} }}.resolver(t)})
	for u, want := range map[string]string{
		"": BadURL, "file:///etc/passwd": BadURL, "gopher://x.test/": BadURL, "//x.test/": BadURL, "http://": BadURL, "http:///x": BadURL, "data:text/html,x": BadURL, "http://a b/": BadURL,
		"http://mail.test:25/": Blocked, "http://mail.test:6379/": Blocked, "http://nobody.test/": NoHost,
	} {
		if _, f := c.Get(t.Context(), u); f == nil || f.Class != want || f.Verdict != retry.Never {
			t.Errorf("%q: %v, want %s", u, f, want)
		}
	}
}

// That our own network is down says nothing of a page: it is tried again.
func TestAFailureOfOurNetworkIsNoPageFailure(t *testing.T) {
	dead, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := dead.LocalAddr().String()
	dead.Close()
	r := names{}.resolver(t)
	r.Dial = func(_ context.Context, _, _ string) (net.Conn, error) { return net.Dial("udp", at) }
	_, f := New(Options{Resolver: r}).Get(t.Context(), "http://page.test/")
	if f == nil || f.Verdict != retry.Again || f.Class != Network {
		t.Errorf("%v", f)
	}
}
