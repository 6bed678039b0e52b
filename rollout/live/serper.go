package live

import (
	"encoding/json"
	"net/http"
	"strings"
)

// serper is serper.dev: a POST of JSON for each kind; pages by its scraper.
var serper = adapter{
	base: map[Kind]string{Web: "https://google.serper.dev", Images: "https://google.serper.dev", Lens: "https://google.serper.dev",
		Page: "https://scrape.serper.dev"},
	keyName: "SERPER_API_KEY",
	sign:    func(r *http.Request, key string) { r.Header.Set("X-API-KEY", key) },
	put: func(a Ask, l Locale) call {
		type search struct {
			Q   string `json:"q"`
			Num int    `json:"num,omitempty"`
			HL  string `json:"hl,omitempty"`
			GL  string `json:"gl,omitempty"`
		}
		type address struct {
			URL string `json:"url"`
		}
		switch a.Kind {
		case Lens:
			return call{path: "/lens", body: address{a.Text}}
		case Page:
			return call{path: "/", body: address{a.Text}}
		case Images:
			return call{path: "/images", body: search{a.Text, a.K, l.Language, l.Country}}
		}
		return call{path: "/search", body: search{a.Text, a.K, l.Language, l.Country}}
	},
	read: readSerper,
	broke: func(status int, message string) bool {
		return status == http.StatusBadRequest && strings.Contains(message, "Not enough credits")
	},
}

func readSerper(a Ask, body []byte) (Answer, error) {
	type hit struct{ Title, Link, Snippet, Date, ImageURL, ThumbnailURL string }
	var in struct {
		Parameters json.RawMessage `json:"searchParameters"`
		Organic    []hit
		Images     []hit
		Text       *string
		Metadata   struct{ Title string }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Answer{}, err
	}
	var out Answer
	switch {
	case a.Kind == Page && in.Text != nil:
		out.Text = titled(in.Metadata.Title, *in.Text)
		return out, nil
	case a.Kind == Page || in.Parameters == nil && in.Organic == nil && in.Images == nil:
		return out, errShape
	}
	for _, h := range append(in.Organic, in.Images...) {
		out.Found = append(out.Found, Found{Title: h.Title, Link: h.Link, Snippet: h.Snippet, Date: h.Date, Image: h.ImageURL, Thumbnail: h.ThumbnailURL})
	}
	return out, nil
}
