package live

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"searchloop/internal/retry"
	"searchloop/internal/secret"
)

// serpAPI is serpapi.com: GET /search.json with an engine. It takes its key in the
// query alone, where it is added last and never shown.
var serpAPI = adapter{
	base:    map[Kind]string{Web: "https://serpapi.com", Images: "https://serpapi.com", Lens: "https://serpapi.com"},
	keyName: "SERPAPI_API_KEY",
	sign: func(r *http.Request, key string) {
		q := r.URL.Query()
		q.Set("api_key", key)
		r.URL.RawQuery = q.Encode()
	},
	put: func(a Ask, l Locale) call {
		q := url.Values{}
		set := func(k, v string) {
			if v != "" {
				q.Set(k, v)
			}
		}
		switch a.Kind {
		case Web:
			set("engine", "google")
			set("num", strconv.Itoa(a.K))
		case Images:
			set("engine", "google_images")
		case Lens:
			set("engine", "google_lens")
			set("url", a.Text)
			set("country", l.Country)
		}
		if a.Kind != Lens {
			set("q", a.Text)
			set("gl", l.Country)
		}
		set("hl", l.Language)
		return call{path: "/search.json", query: q}
	},
	read: readSerpAPI,
	broke: func(status int, message string) bool {
		return status == http.StatusTooManyRequests && strings.Contains(message, "run out of searches")
	},
}

func readSerpAPI(a Ask, body []byte) (Answer, error) {
	type hit struct {
		Title, Link, Snippet, Date, Original, Thumbnail, Image string
	}
	var in struct {
		Metadata *struct{ Status string } `json:"search_metadata"`
		Error    string
		Organic  []hit `json:"organic_results"`
		Images   []hit `json:"images_results"`
		Matches  []hit `json:"visual_matches"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Answer{}, err
	}
	switch {
	case strings.Contains(in.Error, "hasn't returned any results"): // its way to say that there is nothing
	case in.Error != "":
		return Answer{}, &retry.Fault{Verdict: retry.Again, Class: "error object", Err: errors.New(secret.Line(in.Error))}
	case in.Metadata == nil:
		return Answer{}, errShape
	}
	var out Answer
	for _, h := range append(append(in.Organic, in.Images...), in.Matches...) {
		f := Found{Title: h.Title, Link: h.Link, Snippet: h.Snippet, Date: h.Date, Thumbnail: h.Thumbnail, Image: h.Original}
		if f.Image == "" {
			f.Image = h.Image
		}
		out.Found = append(out.Found, f)
	}
	return out, nil
}
