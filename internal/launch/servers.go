package launch

import (
	"context"
	"net/http"
	"os"
	"strings"
	"time"

	"searchloop/internal/atomicfile"
	"searchloop/internal/fail"
)

// Gather waits until every server has written its address into its file and
// answers GET /health or /v1/models, and writes all addresses to file.
func Gather(ctx context.Context, places []string, file string, patience time.Duration) error {
	deadline := time.Now().Add(patience)
	for i := 0; i < len(places); {
		text, err := os.ReadFile(places[i])
		url := strings.TrimSpace(string(text))
		if err == nil && url != "" && healthy(ctx, url) {
			i++
			continue
		}
		if time.Now().After(deadline) {
			why := "it has not said where it listens"
			if url != "" {
				why = "it does not answer at " + url
			}
			return fail.New(fail.Service, "wait for a server", places[i], "%s, after %v", why, patience)
		}
		if err := Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	var all []string
	for _, p := range places {
		text, err := os.ReadFile(p)
		if err != nil {
			return fail.Wrap(fail.Service, "read a server's address", p, err)
		}
		all = append(all, strings.TrimSpace(string(text)))
	}
	_, err := atomicfile.WriteIfChanged(file, []byte(strings.Join(all, "\n")+"\n"))
	return err
}

var asker = &http.Client{Timeout: 5 * time.Second}

// healthy says whether a server answers one of two questions with success, or with
// 401 because it wants a key.
func healthy(ctx context.Context, url string) bool {
	base := strings.TrimSuffix(strings.TrimRight(url, "/"), "/v1")
	for _, path := range []string{"/health", "/v1/models"} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
		if err != nil {
			return false
		}
		res, err := asker.Do(req)
		if err != nil {
			return false
		}
		res.Body.Close()
		if res.StatusCode < 300 || res.StatusCode == http.StatusUnauthorized {
			return true
		}
	}
	return false
}
