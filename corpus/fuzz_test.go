package corpus

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
)

// seeds adds the files of the golden samples.
func seeds(f *testing.F, patterns ...string) {
	for _, p := range patterns {
		files, err := filepath.Glob(filepath.Join("testdata", p))
		if err != nil || len(files) == 0 {
			f.Fatal(p, err)
		}
		for _, file := range files {
			if data, err := os.ReadFile(file); err == nil && len(data) < 1<<20 {
				f.Add(data)
			}
		}
	}
}

// fuzzFile reads data as a file of every format's questions or passages with a
// name of that ending; nothing but rows and errors of kind BadInput may come.
func fuzzFile(t *testing.T, data []byte, name string, formats ...Format) {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, f := range formats {
		for _, src := range sources(f) {
			if _, err := src.walk([]string{path}, 1000); err != nil && fail.KindOf(err) != fail.BadInput && fail.KindOf(err) != fail.Usage {
				t.Fatalf("%s: %v", f.Name, err)
			}
		}
	}
}

func FuzzQuestionLines(f *testing.F) {
	seeds(f, "formats/jsonl/*/in/*.jsonl", "formats/infoseek/*/in/*.jsonl", "formats/search-r1/*/in/*.jsonl", "formats/browsecomp-vl/*/in/*.jsonl", "formats/vision-deepresearch/*/in/*.jsonl")
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzFile(t, data, "rows.jsonl", jsonlFormat, infoSeekFormat, searchR1Format, browseCompVLFormat, visionDeepResearchFormat)
	})
}

func FuzzParquet(f *testing.F) {
	seeds(f, "formats/*/*/in/*.parquet")
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzFile(t, data, "rows.parquet", verlFormat, mmSearchFormat, imageCorpusFormat, visionDeepResearchFormat)
	})
}

func FuzzArrow(f *testing.F) {
	seeds(f, "formats/mmsearch-plus/*/in/*.arrow")
	f.Fuzz(func(t *testing.T, data []byte) { fuzzFile(t, data, "rows.arrow", mmSearchPlusFormat) })
}

func FuzzCSV(f *testing.F) {
	f.Add([]byte("question,answer\na,b\n\"c\",\"d\"\"e\"\nf\n"))
	f.Fuzz(func(t *testing.T, data []byte) { fuzzFile(t, data, "rows.csv", jsonlFormat) })
}

func FuzzLiveVQA(f *testing.F) {
	seeds(f, "formats/livevqa/*/in/*.json")
	f.Fuzz(func(t *testing.T, data []byte) { fuzzFile(t, data, "benchmark.json", liveVQAFormat) })
}

func FuzzPassages(f *testing.F) {
	seeds(f, "formats/passages/*/in/*")
	f.Fuzz(func(t *testing.T, data []byte) { fuzzFile(t, data, "corpus.jsonl", passagesFormat) })
}

func FuzzCranfield(f *testing.F) {
	seeds(f, "formats/cranfield/*/in/*")
	f.Fuzz(func(t *testing.T, data []byte) { fuzzFile(t, data, "cran.all.1400", cranfieldFormat) })
}

func FuzzPickle(f *testing.F) {
	seeds(f, "pickles/*.pkl")
	f.Fuzz(func(t *testing.T, data []byte) {
		if v, err := unpickle(data); err == nil {
			_ = v
		}
		path := filepath.Join(t.TempDir(), "cache.pkl")
		os.WriteFile(path, data, 0o600)
		for e, err := range pickledEntries(path) {
			if err != nil && fail.KindOf(err) != fail.BadInput {
				t.Fatal(err)
			}
			for _, p := range e.pictures {
				if p != nil && p.w*p.h < 1<<20 {
					p.png()
				}
			}
		}
	})
}

// FuzzLensCache holds that the quick way over a line gives what the slow one
// gives, and that what it copies is JSON.
func FuzzLensCache(f *testing.F) {
	for _, s := range []string{
		`{"data_id":"a","cached_data":[{"cached_title":"t\u00e9","cached_images_path":"x/y.png"}],"more":{"a":[1,2]}}`, `{"data_id":"a","cached_data":[]}`,
		`{"cached_data":[{"cached_images_path":null,"cached_title":null}],"data_id":"b"}`, `{"data_id":"a","data_id":"b","cached_data":[{"cached_images_path":"1","cached_images_path":"2"}]}`,
		`{"data_id":"g ","cached_data":[{"cached_images_path":null}]}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		quick, slow := cacheEntry{}, cacheEntry{}
		if !quick.fast(line) {
			return
		}
		slow.parse(line)
		if slow.Err != nil || slow.ID != quick.ID || len(slow.Hits) != len(quick.Hits) {
			t.Fatalf("%q: %+v, slowly %+v", line, quick, slow)
		}
		paths := make([]string, len(quick.Hits))
		for i := range paths {
			a, err := quick.Hits[i].appendTitle(nil)
			b, _ := slow.Hits[i].appendTitle(nil)
			p, perr := quick.Hits[i].Path()
			q, _ := slow.Hits[i].Path()
			if err != nil || perr != nil || string(a) != string(b) || p != q {
				t.Fatalf("%q hit %d: %q %q %v", line, i, a, b, err)
			}
			paths[i] = "null"
			if i%2 == 0 {
				paths[i] = `"/new \"path\""`
			}
		}
		x, y := quick.appendWithImages(nil, paths), slow.appendWithImages(nil, paths)
		v, err := record.ParseJSON(x)
		if err != nil || !json.Valid(x) {
			t.Fatalf("%q became %q: %v", line, x, err)
		}
		w, _ := record.ParseJSON(y)
		if !bytes.Equal(v.AppendJSON(nil), w.AppendJSON(nil)) && !bytes.Contains(line, []byte("cached_images_path\",")) && bytes.Count(line, []byte(lensHits)) == 1 {
			t.Fatalf("%q became\n%q, slowly\n%q", line, x, y)
		}
	})
}

func FuzzImage(f *testing.F) {
	seeds(f, "images/*")
	f.Fuzz(func(t *testing.T, data []byte) {
		if CheckImage(data) == nil && imageExt(data) == "" {
			t.Fatal("an image without a kind")
		}
	})
}

func FuzzChunks(f *testing.F) {
	f.Add("\"T\"\none two three", 20, 4)
	k, err := newChunker(Chunking{Tokens: 20, Overlap: 4, Tokenizer: "../internal/token/testdata/lower"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string, n, overlap int) {
		if n < 16 || n > 1000 || overlap < 0 || overlap > n/2 || len(s) > 1<<16 {
			return
		}
		c := *k
		c.Tokens, c.Overlap = n, overlap
		if pieces := c.cut(s); len(pieces) == 0 || len(pieces) > len(s)+1 {
			t.Fatalf("%d pieces of %d bytes", len(pieces), len(s))
		}
	})
}
