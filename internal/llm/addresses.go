package llm

import (
	"os"
	"strings"

	"searchloop/internal/fail"
)

// Addresses are the URLs of servers; "@FILE" stands for those in a file, one a line,
// as package launch hands them over. listed says that there was a file: where its
// servers are is then nobody's choice and changes no result.
func Addresses(urls []string) (list []string, listed bool, err error) {
	for _, u := range urls {
		path, ok := strings.CutPrefix(u, "@")
		if !ok {
			list = append(list, u)
			continue
		}
		listed = true
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, true, fail.WithHint(fail.Wrap(fail.Service, "read addresses", path, err), "its servers have not been started")
		}
		found := strings.Fields(string(text))
		if len(found) == 0 {
			return nil, true, fail.New(fail.Service, "read addresses", path, "there is none in it")
		}
		list = append(list, found...)
	}
	return list, listed, nil
}
