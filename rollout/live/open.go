package live

import (
	"errors"
	"net/url"
	"slices"
	"strings"

	"searchloop/internal/fail"
	"searchloop/internal/lookup"
	"searchloop/internal/secret"
)

// Direct is the name of the provider that fetches by itself.
const Direct = "direct"

// errShape says that a response is not what a provider documents.
var errShape = errors.New("not what the provider documents")

// Options of a provider.
type Options struct {
	Gateway string // address in the place of the provider's own
	Locale  Locale
	Allow   []string       // of direct: host:port that may be private
	Offline bool           // nothing will be asked, only replayed: no key is needed
	Way     lookup.Options // Name and KeyName are set here
}

// Open makes the provider of that name for questions of the given kinds. Its key
// comes from the environment; one that is missing is a usage error, unless there is
// a gateway, which may have its own.
func Open(d *lookup.Desk, name string, opt Options, kinds ...Kind) (*Provider, error) {
	p := &Provider{name: name, locale: opt.Locale}
	opt.Way.Name = name
	if name == Direct {
		if slices.ContainsFunc(kinds, func(k Kind) bool { return k != Page && k != Image }) {
			return nil, fail.New(fail.Usage, "open provider", name, "it fetches pages and images, and searches for nothing")
		}
		p.once, p.way = newDirect(opt.Allow).once, d.Provider(opt.Way)
		return p, nil
	}
	a, ok := adapters[name]
	if !ok {
		return nil, fail.New(fail.Usage, "open provider", name, "there is no such provider")
	}
	in := &api{adapter: a, locale: opt.Locale, key: secret.FromEnv(a.keyName), http: client()}
	if opt.Gateway != "" {
		u, err := url.Parse(opt.Gateway)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			return nil, fail.New(fail.Usage, "open provider", name, "its gateway is not an http address, or holds a user name")
		}
		p.gateway = strings.TrimRight(opt.Gateway, "/")
		in.gateway = p.gateway
	}
	for _, k := range kinds {
		switch {
		case a.base[k] == "":
			return nil, fail.New(fail.Usage, "open provider", name, "it does not answer questions of the kind %s", k)
		case in.key.IsZero() && in.gateway == "" && !a.keyless[k] && !opt.Offline:
			return nil, fail.WithHint(fail.New(fail.Usage, "open provider", name, "there is no key"), "set "+a.keyName)
		}
	}
	opt.Way.KeyName = a.keyName
	p.once, p.way = in.once, d.Provider(opt.Way)
	return p, nil
}
