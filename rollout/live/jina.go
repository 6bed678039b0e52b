package live

import (
	"encoding/json"
	"net/http"

	"searchloop/internal/retry"
)

// jina is jina.ai: its Reader gives the text of a page, its search hits without
// their pages. The Reader works without a key, for few requests.
var jina = adapter{
	base:    map[Kind]string{Web: "https://s.jina.ai", Page: "https://r.jina.ai"},
	keyName: "JINA_API_KEY",
	keyless: map[Kind]bool{Page: true},
	sign:    func(r *http.Request, key string) { r.Header.Set("Authorization", "Bearer "+key) },
	put: func(a Ask, l Locale) call {
		if a.Kind == Page {
			return call{path: "/", body: map[string]string{"url": a.Text}, header: map[string]string{"X-Retain-Images": "none", "X-Timeout": "60"}}
		}
		body := map[string]any{"q": a.Text, "num": a.K}
		for k, v := range map[string]string{"hl": l.Language, "gl": l.Country} {
			if v != "" {
				body[k] = v
			}
		}
		return call{path: "/", body: body, header: map[string]string{"X-Respond-With": "no-content"}}
	},
	read: readJina,
}

func readJina(a Ask, body []byte) (Answer, error) {
	type page struct{ Title, URL, Description, Content, Date string }
	var in struct {
		Code int
		Data json.RawMessage
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return Answer{}, err
	}
	var out Answer
	if a.Kind == Page {
		var p page
		if json.Unmarshal(in.Data, &p) != nil || len(in.Data) == 0 || string(in.Data) == "null" {
			return out, errShape
		}
		if p.Content == "" {
			return out, &retry.Fault{Verdict: retry.Never, Class: "empty page"}
		}
		out.Text = titled(p.Title, p.Content)
		return out, nil
	}
	var list []page
	if json.Unmarshal(in.Data, &list) != nil || list == nil {
		return out, errShape
	}
	for _, p := range list {
		out.Found = append(out.Found, Found{Title: p.Title, Link: p.URL, Snippet: p.Description, Date: p.Date})
	}
	return out, nil
}
