package job

import (
	"net"
	"net/url"
	"os"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// Announce writes the address of a server to a file, for those who wait for it. A
// server that listens on every address of its machine is announced by the
// machine's name.
func Announce(path, address string) error {
	if path == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil {
		return fail.Wrap(fail.Bug, "announce", path, err)
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && ip.IsUnspecified() {
		host, err := os.Hostname()
		if err != nil {
			return fail.Wrap(fail.Usage, "announce", path, err)
		}
		u.Host = net.JoinHostPort(host, u.Port())
	}
	return atomicfile.WriteFile(path, []byte(u.String()+"\n"))
}
