package tool

import "searchloop/internal/jsonscan"

// retrieved is the response of POST /retrieve.
type retrieved struct {
	Result *[][]retrievedHit `json:"result"`
}

type retrievedHit struct {
	Document struct {
		ID       string `json:"id"`
		Contents string `json:"contents"`
		URL      string `json:"url"`
		Title    string `json:"title"`
		Text     string `json:"text"`
		ImageID  string `json:"image_id"`
	} `json:"document"`
	Score float32 `json:"score"`
}

// scanRetrieved reads a response of the usual form in one pass; ok is false for any
// other.
func scanRetrieved(body []byte) (out retrieved, ok bool) {
	s := jsonscan.New(body)
	s.Object(func(name []byte) {
		if string(name) != "result" {
			s.Skip()
			return
		}
		if out.Result != nil {
			s.Fail()
		}
		out.Result = new([][]retrievedHit)
		s.Array(func() {
			list := make([]retrievedHit, 0, 4)
			s.Array(func() { list = append(list, scanHit(s)) })
			*out.Result = append(*out.Result, list)
		})
	})
	return out, s.End() && out.Result != nil
}

func scanHit(s *jsonscan.Scanner) (h retrievedHit) {
	var seen uint
	s.Object(func(name []byte) {
		switch string(name) {
		case "document":
			s.Once(&seen, 0)
			s.Object(func(name []byte) {
				d := &h.Document
				var into *string
				switch string(name) {
				case "id":
					into = &d.ID
				case "contents":
					into = &d.Contents
				case "url":
					into = &d.URL
				case "title":
					into = &d.Title
				case "text":
					into = &d.Text
				case "image_id":
					into = &d.ImageID
				default:
					s.Skip()
					return
				}
				if *into != "" {
					s.Fail() // twice: the last one counts, and encoding/json knows which
				}
				*into = s.String()
			})
		case "score":
			s.Once(&seen, 1)
			h.Score = s.Float32()
		default:
			s.Skip()
		}
	})
	return h
}
