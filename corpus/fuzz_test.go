package corpus

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"searchloop/corpus/record"
	"searchloop/internal/fail"
	"searchloop/internal/untar"
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
	f.Add([]byte(`{"data_id":"1","prompt":[{"role":"user","content":"<image>Who?"}],"images":[{"path":"a.png"}],"reward_model":{"style":"rule","ground_truth":"I","candidate_answers":"['I', 'me']"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzFile(t, data, "rows.jsonl", verlFormat, jsonlFormat, infoSeekFormat, searchR1Format, browseCompVLFormat, visionDeepResearchFormat)
	})
}

func FuzzParquet(f *testing.F) {
	seeds(f, "formats/*/*/in/*.parquet")
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzFile(t, data, "rows.parquet", verlFormat, mmSearchFormat, imageCorpusFormat, visionDeepResearchFormat,
			simpleVQAFormat, vdrBenchFormat, mmSearchPlusFormat, searchR1Format, jsonlFormat, passagesFormat)
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

// FuzzPassages holds that whole blocks of lines give what the lines give one by one.
func FuzzPassages(f *testing.F) {
	seeds(f, "formats/passages/*/in/*")
	f.Add([]byte("{\"id\":\"1\",\"contents\":\"a\\u00e9\\n\"}\n{\"id\":1}\n\n{\"id\":2,\"contents\":\"\\x\"}\n{\"_id\":\"3\",\"title\":\"T\",\"text\":\"b\"}"))
	c, used := &canonical{format: passagesFormat}, &passageBlock{}
	f.Fuzz(func(t *testing.T, data []byte) {
		fuzzFile(t, data, "corpus.jsonl", passagesFormat)
		path := filepath.Join(t.TempDir(), "corpus.jsonl")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		var want, got []string
		line := func(n int64, id string, err error, p Passage) string {
			return fmt.Sprintf("%d %q %v %q", n, id, err, p)
		}
		passageLines(path, func(row Row[Document], err error) bool {
			if err != nil {
				return false
			}
			d, p := draftOf(row, true), Passage{}
			if d.err == nil {
				p, d.err = c.passage(d)
			}
			if d.err != nil {
				p = Passage{}
			}
			want = append(want, line(d.n, d.id, d.err, p))
			return true
		})
		out := newPassageTable(io.Discard)
		var mu sync.Mutex // a short file is one block, which uses the memory of the last one
		for list, err := range record.MapBlocks(path, func(lines record.Block) (list []string) {
			mu.Lock()
			defer mu.Unlock()
			used.path = path
			c.passageBlock(used, out, lines)
			made := used.made
			for _, l := range used.lines {
				p := Passage{}
				if l.err == nil {
					p, made = made[0], made[1:]
				}
				list = append(list, line(l.n, l.id, l.err, p))
			}
			return list
		}) {
			if err != nil {
				break
			}
			got = append(got, list...)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q\nwhole blocks %q\nline by line %q", data, got, want)
		}
	})
}

// FuzzArchive unpacks anything as an archive of images: files appear below the folder
// or not at all, and nothing but errors of kind BadInput comes.
func FuzzArchive(f *testing.F) {
	for _, name := range []string{"images/a.png", "../a.png", "/a.png", "a/../../b", "images"} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, kind := range []byte{tar.TypeReg, tar.TypeSymlink, tar.TypeLink, tar.TypeDir} {
			h := &tar.Header{Name: name, Typeflag: kind, Linkname: "../../x", Mode: 0o644}
			if kind == tar.TypeReg {
				h.Linkname, h.Size = "", 3
			}
			if err := w.WriteHeader(h); err != nil {
				f.Fatal(err)
			}
			if kind == tar.TypeReg {
				w.Write([]byte("abc"))
			}
		}
		w.Close()
		f.Add(b.Bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		around := t.TempDir()
		dir := filepath.Join(around, "deep", "dir")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		root, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer root.Close()
		_, err = untar.Extract(bytes.NewReader(data), root, untar.Limits{Entries: 100, Bytes: 1 << 20}, nil)
		if err != nil && fail.KindOf(err) != fail.BadInput {
			t.Fatal(err)
		}
		for _, up := range []string{around, filepath.Dir(dir)} {
			if entries, err := os.ReadDir(up); err != nil || len(entries) != 1 {
				t.Fatalf("outside of the folder: %v %v", entries, err)
			}
		}
		filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || !e.IsDir() && !e.Type().IsRegular() {
				t.Fatalf("%s: %v %v", path, e, err)
			}
			return nil
		})
	})
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
