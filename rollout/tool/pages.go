package tool

import (
	"context"
	"errors"
	"hash/maphash"
	"net/url"
	"os"
	"strings"

	"searchloop/corpus"
	"searchloop/internal/fail"
	"searchloop/internal/table"
)

// Unreadable says why there is no text of a page, in the words that the policy reads.
type Unreadable struct{ Why string }

func (u Unreadable) Error() string { return u.Why }

// errNoPage is all that a store knows of a page that it does not have.
var errNoPage = Unreadable{}

// PageStore is a store of pages on disk: a passages dataset whose ids are addresses.
// Pages of search indices are found at passage:<id> and at the id itself. Memory
// holds 24 bytes a page; the texts are in a file. Safe for concurrent use.
type PageStore struct {
	file *os.File
	seed maphash.Seed
	at   map[uint64]place
}

type place struct {
	offset int64
	length int32
}

// OpenPages reads the passages datasets in dirs. The file for their texts is made
// in scratch and has no name, so that nothing is left of it. Close frees it.
func OpenPages(scratch string, dirs ...string) (*PageStore, error) {
	if err := os.MkdirAll(scratch, 0o777); err != nil {
		return nil, fail.Wrap(fail.Disk, "open pages", scratch, err)
	}
	f, err := os.CreateTemp(scratch, ".pages-*")
	if err != nil {
		return nil, fail.Wrap(fail.Disk, "open pages", scratch, err)
	}
	if err := os.Remove(f.Name()); err != nil {
		return nil, errors.Join(fail.Wrap(fail.Disk, "open pages", f.Name(), err), f.Close())
	}
	p := &PageStore{file: f, seed: maphash.MakeSeed(), at: map[uint64]place{}}
	var offset int64
	for _, dir := range dirs {
		for row, err := range table.ReadDataset[corpus.Passage](dir) {
			if err != nil {
				return nil, errors.Join(err, p.Close())
			}
			text := row.ID + "\n" + row.Contents
			if _, err := f.WriteString(text); err != nil {
				return nil, errors.Join(fail.Wrap(fail.Disk, "open pages", scratch, err), p.Close())
			}
			p.at[p.key(row.ID)] = place{offset, int32(len(text))}
			offset += int64(len(text))
		}
	}
	return p, nil
}

// Close frees the file.
func (p *PageStore) Close() error { return p.file.Close() }

func (p *PageStore) key(address string) uint64 { return maphash.String(p.seed, Address(address)) }

// Get is the page at an address.
func (p *PageStore) Get(_ context.Context, address string) (string, error) {
	at, ok := p.at[p.key(address)]
	if !ok {
		return "", errNoPage
	}
	buf := make([]byte, at.length)
	if _, err := p.file.ReadAt(buf, at.offset); err != nil {
		return "", fail.Wrap(fail.Disk, "read page", address, err)
	}
	id, contents, _ := strings.Cut(string(buf), "\n")
	if Address(id) != Address(address) { // two addresses of one hash
		return "", errNoPage
	}
	return contents, nil
}

// Address is the normal form of a page's address: scheme and host in lower case,
// without the scheme's own port, fragment and a slash at the end; http is https.
// passage:<id> is <id>. What is no URL stays as it is.
func Address(s string) string {
	s = strings.TrimPrefix(strings.TrimSpace(s), Passage)
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return s
	}
	u.Scheme, u.Host, u.Fragment, u.User = strings.ToLower(u.Scheme), strings.ToLower(u.Host), "", nil
	if u.Scheme == "http" {
		u.Scheme = "https"
	}
	u.Host = strings.TrimSuffix(strings.TrimSuffix(u.Host, ":443"), ":80")
	u.Path, u.RawPath = strings.TrimRight(u.Path, "/"), strings.TrimRight(u.RawPath, "/")
	return u.String()
}

// Passage begins the address of a passage that has no address of its own.
const Passage = "passage:"

// link is where a passage can be visited.
func link(id string) string {
	if strings.Contains(id, "//") { // no host without
		if u, err := url.Parse(id); err == nil && u.Host != "" {
			return id
		}
	}
	return Passage + id
}
