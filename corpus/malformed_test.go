package corpus

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"searchloop/internal/fail"
	"searchloop/internal/job"
	"searchloop/internal/manifest"
)

// TestMalformedRows gives one job rows that are wrong in as many ways, pictures
// of every kind among them, which are cut and changed: every one is rejected and
// the good ones stay.
func TestMalformedRows(t *testing.T) {
	dir := t.TempDir()
	rows := slices.Clone(badRows)
	for _, cell := range badCells() {
		rows = append(rows, `{"question":"<image>What is it?","answers":["a"],"image":`+cell+"}")
	}
	for _, name := range []string{"gray.jpg", "palette.png", "lossless.webp", "plain.bmp", "plain.avif", "frames.gif"} {
		for i, data := range badPictures(name) {
			path := filepath.Join(dir, fmt.Sprint(i, name))
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			rows = append(rows, fmt.Sprintf(`{"question":"What is it?","answers":["a"],"image":%q}`, path))
		}
	}
	for i := range rows {
		rows[i] = goodRow + "\n" + rows[i]
	}
	o := PrepOptions{Format: "jsonl", In: []string{lensFile(t, "rows.jsonl", strings.Join(rows, "\n"))}, Out: filepath.Join(dir, "out"), DecodeImages: true, MaxRejects: 1}
	if err := prep(t, job.Flags{}, o); err != nil {
		t.Fatal(err)
	}
	for _, q := range rowsOfDataset[Question](t, o.Out) {
		if q.Text != "Who?" {
			n, _ := strconv.Atoi(strings.TrimPrefix(q.ID, "rows_"))
			t.Errorf("row %d was taken: %.300s", n, rows[n/2])
		}
	}
	m, err := manifest.Open(o.Out)
	if n := int64(len(rows)); err != nil || m.Counts != (manifest.Counts{In: 2 * n, OK: n, Rejected: n}) {
		t.Errorf("%d bad rows: %+v, %v", n, m.Counts, err)
	}
}

// malformed are files of one kind, each wrong in its own way.
type malformed struct {
	kind  string
	name  string // of the file
	files [][]byte
	// use reads a file as a user would and gives the counts of the dataset.
	use func(t *testing.T, path string) (manifest.Counts, error)
}

// TestMalformed gives the jobs twenty and more files of each kind that no reader
// may take as they are: each leaves rejects with a reason, or ends the job with
// an error that names the file. Nothing panics and nothing passes.
func TestMalformed(t *testing.T) {
	for _, m := range slices.Concat(malformedTexts(), malformedTables(), malformedCaches(t)) {
		t.Run(m.kind, func(t *testing.T) {
			t.Parallel() // they wait for the disk
			if len(m.files) < 20 {
				t.Fatalf("only %d files", len(m.files))
			}
			for i, data := range m.files {
				path := filepath.Join(t.TempDir(), m.name)
				if err := os.WriteFile(path, data, 0o600); err != nil {
					t.Fatal(err)
				}
				counts, err := m.use(t, path)
				var e *fail.Error
				switch {
				case err == nil && counts.Rejected == 0:
					t.Errorf("file %d was taken: %+v\n%.200q", i, counts, data)
				case err != nil && (!errors.As(err, &e) || e.Kind != fail.BadInput || !strings.Contains(err.Error(), m.name)):
					t.Errorf("file %d: %v\n%.200q", i, err, data)
				}
			}
		})
	}
}

// prepares uses files by Prep.
func prepares(format string) func(t *testing.T, path string) (manifest.Counts, error) {
	return func(t *testing.T, path string) (manifest.Counts, error) {
		return prepCounts(t, PrepOptions{Format: format, In: []string{path}, MaxRejects: 1})
	}
}

func prepCounts(t *testing.T, o PrepOptions) (manifest.Counts, error) {
	o.Out = filepath.Join(t.TempDir(), "out")
	if err := prep(t, job.Flags{}, o); err != nil {
		return manifest.Counts{}, err
	}
	m, err := manifest.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	return m.Counts, nil
}

const goodRow = `{"question":"Who?","answers":["I"]}`

// badRows are texts that stand where the row of a question should.
var badRows = []string{
	`{`, `{"question":"q","answers":["a"]`, `not a row`, `[1,2`, `"text"`, `42`, `null`, `{"question":"q"}`, `{"answers":["a"]}`,
	`{"question":"","answers":["a"]}`, `{"question":"q","answers":[]}`, `{"question":["q"],"answers":["a"]}`, `{"question":"q","answers":[{"a":1}]}`,
	"{\"question\":\"q\xff\",\"answers\":[\"a\"]}", `{"question":"q","answers":["a"],"image":"absent.png"}`, `{"question":"q","answers":["a"],"image":{"bytes":"!!"}}`,
	`{"question":"q","answers":["a"],"id":"a\u0000b"}`, `{"question":"q","answers":["a"],}`, `{"question":"q" "answers":["a"]}`, `{"question":"\u12","answers":["a"]}`,
	`{"question":"q","answers":["a"],"id":01}`, strings.Repeat("[", 100000), `{'question':'q','answers':['a']}`, `{"question":"<image> q","answers":["a"]}`,
}

func malformedTexts() []malformed {
	const good = `{"id":"1","contents":"\"T\"\nbody"}` + "\n"
	var passages, lists, gz, zst [][]byte
	for _, row := range []string{
		`{`, `{"id":"2","contents":"cut`, `not a row`, `[1,2]`, `"text"`, `42`, `null`, `{"id":"2"}`, `{"contents":"no id"}`, `{"id":"2","contents":""}`, `{"id":"2","contents":" \n\t"}`,
		`{"id":"2","contents":null}`, `{"id":"2","contents":["a"]}`, `{"id":"2","contents":{"a":1}}`, `{"id":{},"contents":"a"}`, `{"id":"1","contents":"again"}`, "{\"id\":\"2\",\"contents\":\"\xff\"}",
		"{\"id\":\"2\",\"contents\":\"a\tb\"}", `{"id":"2","contents":"\x"}`, `{"id":"2","contents":"\u12"}`, `{"id":"a\u0000b","contents":"a"}`, `{"id":"2","contents":"a"}{`, `{"id":"2","contents":"a",}`,
		`{"id":"2","title":"T"}`, `{"id":"2","title":"T","text":" "}`, `{"id":"` + strings.Repeat("i", 600) + `","contents":"a"}`, `{"id":"2","contents":"a"`, `{'id':'2','contents':'a'}`,
	} {
		passages = append(passages, []byte(good+row+"\n"))
	}
	for _, row := range badRows {
		lists = append(lists, []byte("["+goodRow+","+row+"]"))
	}
	whole := bytes.Repeat([]byte(`{"id":"1","contents":"\"T\"\nbody"}`+"\n"), 1)
	for i := range 200 {
		whole = fmt.Appendf(whole, "{\"id\":\"x%d\",\"contents\":\"\\\"T\\\"\\nbody of %d\"}\n", i, i*i)
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(whole)
	w.Close()
	gz = damages(b.Bytes(), []int{0, 1, 2, b.Len() - 8, b.Len() - 4})
	e, _ := zstd.NewWriter(nil)
	z := e.EncodeAll(whole, nil)
	zst = damages(z, []int{0, 1, 3, len(z) - 4})
	csv := []string{
		"question,answers\nq,a\n\"q,a\n", "question,answers\nq,a\nq\n", "question,answers\nq,a\nq,a,b\n", "question,answers\nq,a\nq\"x,a\n", "question,answers\nq,a\n\"q\"x,a\n",
		"question,answers\nq,a\n,a\n", "question,answers\nq,a\nq,\n", "question,answers\nq,a\n , \n", "question\nq\n", "answers\na\n", "", "\n\n", "question,answers\n", "question;answers\nq;a\n",
		"question,answers\nq,a\nq\xff,a\n", "question,answers\nq,\"['a', \"\"b\"\n", "question,answers,image\nq,a,absent.png\nw,a,\n", "question,answers,id\nq,a,1\nw,a,1\n",
		"question,answers\nq,a\nq,\"['a' ... 'b']\"\n", "\x00\x01\x02", "question,answers,images\nq,a,\nw,a,\"[{'bytes': 'x'}]\"\n", "question,question,answers\nq,w,a\n",
	}
	var csvs [][]byte
	for _, c := range csv {
		csvs = append(csvs, []byte(c))
	}
	return []malformed{
		{"passages", "corpus.jsonl", passages, prepares("passages")}, {"JSON list", "rows.json", lists, prepares("jsonl")}, {"CSV", "rows.csv", csvs, prepares("jsonl")},
		{"gzip", "corpus.jsonl.gz", gz, prepares("passages")}, {"Zstandard", "corpus.jsonl.zst", zst, prepares("passages")},
	}
}

// damages cuts data in sixteen places and changes it at others; every one of these
// must be noticed in a format that knows its length.
func damages(data []byte, at []int) (out [][]byte) {
	for i := range 16 {
		out = append(out, data[:len(data)*i/16])
	}
	for _, k := range at {
		b := bytes.Clone(data)
		b[k] ^= 0x5a
		out = append(out, b)
	}
	return out
}

func malformedTables() []malformed {
	parquet := sampleFile("formats/verl/fvqa/in/fvqa_train.parquet")
	n := len(parquet)
	files := damages(parquet, []int{n - 1, n - 4, n - 6, n - 8})
	for _, length := range []uint32{0, 7, uint32(n), 1<<31 - 1, 1<<32 - 1} { // of the footer
		b := bytes.Clone(parquet)
		binary.LittleEndian.PutUint32(b[n-8:], length)
		files = append(files, b)
	}
	stream := sampleFile("formats/mmsearch-plus/stream/in/data-00000-of-00001.arrow")
	arrow := damages(stream, []int{4, 5, 6, 8})
	arrow = append(arrow, []byte("ARROW1"), []byte("ARROW1\x00\x00\xff\xff\xff\xff\x10\x00\x00\x00ARROW1"))
	return []malformed{{"Parquet", "rows.parquet", files, prepares("verl")}, {"Arrow", "rows.arrow", arrow, prepares("mmsearch-plus")}}
}

func sampleFile(name string) []byte {
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		panic(err)
	}
	return data
}

const goodEntry = `{"data_id":"a","cached_data":[]}`

func malformedCaches(t *testing.T) []malformed {
	var lines, lists, dicts [][]byte
	for _, entry := range []string{
		`{`, `not an entry`, `42`, `"text"`, `null`, `[1`, `{"data_id":"b"`, `{"data_id":"b","cached_data":"odd"}`, `{"data_id":"b","cached_data":{"a":1}}`, `{"data_id":"b","cached_data":[1]}`,
		`{"data_id":"b","cached_data":[null]}`, `{"data_id":"b","cached_data":[{"cached_title":1}]}`, `{"data_id":"b","cached_data":[{"cached_images_path":["x"]}]}`,
		`{"data_id":"b\u0007","cached_data":[]}`, `{"data_id":"b","cached_data":[{"cached_title":"x"]}`, `{"data_id":"b","cached_data":[],}`, `{"data_id":"b","cached_data":[}`,
		`{"data_id":"b","cached_data":true}`, `{"data_id":"b","cached_data":[[]]}`, `{"data_id":"b","cached_data":[{"cached_title":{}}]}`, `{'data_id':'b','cached_data':[]}`,
	} {
		lines = append(lines, []byte(goodEntry+"\n"+entry+"\n"))
		lists = append(lists, []byte("["+goodEntry+","+entry+"]"))
		dicts = append(dicts, []byte(`{"a":`+goodEntry+`,"b":`+entry+"}"))
	}
	for _, entry := range []string{`{"cached_data":[]}`, `{"data_id":"","cached_data":[]}`, `{"data_id":null,"cached_data":[]}`} { // in a dict the key is the id
		lines, lists = append(lines, []byte(goodEntry+"\n"+entry+"\n")), append(lists, []byte("["+goodEntry+","+entry+"]"))
	}
	cache := func(t *testing.T, path string) (manifest.Counts, error) {
		return lensCounts(t, LensOptions{Cache: []string{path}})
	}
	pickles := damages(sampleFile("pickles/cache4.pkl"), nil)[1:]
	for _, evil := range []string{"system", "eval", "getattr", "open"} {
		pickles = append(pickles, sampleFile("pickles/evil-"+evil+".pkl"))
	}
	pickles = append(pickles, []byte("\x80\x04K\x01."), []byte("\x80\x04]."), []byte("\x80\x04}U\x01aK\x01s."), []byte("\x80\xff."), []byte("\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7f"))
	tar, err := os.ReadFile(tarGz(t, tarEntry{name: "images/a.png", data: pngOf(1)}, tarEntry{name: "images/b.png", data: pngOf(2)}))
	if err != nil {
		t.Fatal(err)
	}
	archive := func(t *testing.T, path string) (manifest.Counts, error) {
		return lensCounts(t, LensOptions{Cache: []string{lensFile(t, "lens.jsonl", goodEntry)}, Tar: []string{path}})
	}
	return []malformed{
		{"lens lines", "lens.jsonl", lines, cache}, {"lens list", "lens.json", lists, cache}, {"lens dict", "lens.json", dicts, cache},
		{"pickle", "cache.pkl", pickles, cache}, {"tar.gz", "images.tar.gz", damages(tar, []int{0, 1, 2, len(tar) - 8, len(tar) - 4}), archive},
	}
}

func lensCounts(t *testing.T, o LensOptions) (manifest.Counts, error) {
	o.Out, o.MaxMissing = filepath.Join(t.TempDir(), "out"), 1
	if err := lensRun(t, o); err != nil {
		return manifest.Counts{}, err
	}
	m, err := manifest.Open(o.Out)
	if err != nil {
		t.Fatal(err)
	}
	return m.Counts, nil
}

// badPictures are cut and changed pictures of a kind. Of a GIF the last frames may
// be missing: nobody sees them.
func badPictures(name string) [][]byte {
	whole := sampleFile("images/" + name)
	if strings.HasSuffix(name, ".gif") {
		whole = whole[:len(whole)/4]
	}
	files := damages(whole, nil)
	for _, head := range []string{"", "\x00\x00\x00\x00", "<html>", "GIF89a", "\x89PNG\r\n\x1a\n", "\xff\xd8\xff\xe0", "RIFF\xff\xff\xff\xffWEBPVP8 ", "BM\xff\xff\xff\xff"} {
		files = append(files, append([]byte(head), whole[len(whole)/2:]...))
	}
	return files
}

// badCells are images as JSON that hold none.
func badCells() []string {
	encoded := base64.StdEncoding.EncodeToString(pngOf(1))
	return []string{
		`""`, `"[]x"`, `{"bytes":5}`, `{"bytes":""}`, `{"bytes":"` + encoded[:20] + `"}`, `[137,80,78]`, `[256,1]`, `[-1]`, `["a","b"]`, `{"0":137,"2":80}`, `{"0":137,"x":80}`, `{"0":999}`,
		`"data:image/png;base64,!!"`, `"data:image/png;base64,"`, `"data:text/plain,hello"`, `"iVBORw0KGgo="`, `{"path":"../../absent.png"}`, `"/dev/zero"`, `"."`, `true`, `3.5`, `[[[1]]]`, `{"path":""}`,
	}
}
