package pipelines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	"searchloop/internal/fault"
	"searchloop/internal/slurm/slurmtest"
	"searchloop/internal/table"
	"searchloop/rollout/trajectory"
)

// stages makes index, rollouts, verdicts and metrics with n shards below x/NAME, each
// job behind a launcher or by itself, and returns what they say, whatever part it
// stands in.
func stages(t *testing.T, p place, name, launcher string, n int) map[string]string {
	t.Helper()
	dir := "x/" + name
	play := strings.Replace(playing, "data/corpora/demo/text/index", dir+"/index", 1)
	for _, line := range []string{
		"embed --encoder data/corpora/demo/encoder --passages data/corpora/demo/text/passages --out DIR/vectors --shards N",
		"index --vectors DIR/vectors --passages data/corpora/demo/text/passages --out DIR/index --shards N",
		"rollout " + play + "--policy runs/mini/epoch-1/checkpoint --out DIR/rollouts --shards N",
		"judge --recipe mini --rollouts DIR/rollouts --out DIR/judged --shards N",
		"evaluate --recipe mini --bench demo --rollouts DIR/rollouts --judged DIR/judged --questions data/questions/demo --out DIR/eval",
	} {
		line = strings.NewReplacer("DIR", dir, " N", fmt.Sprintf(" %d", n)).Replace(line)
		if launcher != "" {
			line = "launch " + launcher + " --recipe demo -- bin/" + line
		}
		cmd := p.command(line)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	said := map[string]string{}
	parts, _ := filepath.Glob(p.path(dir + "/index/part-*.index"))
	if len(parts) != n {
		t.Fatalf("%s: %d parts of the index", name, len(parts))
	}
	merge := "index --out " + dir + "/all.index"
	for _, part := range parts {
		merge += " --merge " + part
	}
	if code, stderr := p.job(merge); code != 0 {
		t.Fatal(stderr)
	}
	said["index"] = string(p.read(dir + "/all.index"))
	said["rollouts"] = rowsOf[trajectory.Row](t, p.path(dir+"/rollouts"))
	said["judged"] = rowsOf[trajectory.Judged](t, p.path(dir+"/judged"))
	said["metrics"] = metricsOf(t, p.read(dir+"/eval/metrics.json"))
	said["samples"] = string(p.read(dir + "/eval/" + part0 + ".parquet"))
	return said
}

// metricsOf leaves out the digest of the index, which is that of its parts.
func metricsOf(t *testing.T, text []byte) string {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(text, &m); err != nil {
		t.Fatal(err)
	}
	provenance, _ := m["provenance"].(map[string]any)
	inputs, _ := provenance["inputs"].(map[string]any)
	if inputs["text_index"] == nil {
		t.Fatalf("no index in %s", text)
	}
	delete(inputs, "text_index")
	text, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// rowsOf is every row of a dataset as JSON, sorted.
func rowsOf[T any](t *testing.T, dir string) string {
	t.Helper()
	var rows []string
	for r, err := range table.ReadDataset[T](dir) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, string(text))
	}
	sort.Strings(rows)
	return strings.Join(rows, "\n")
}

func same(t *testing.T, what string, a, b map[string]string) {
	t.Helper()
	for name := range a {
		if a[name] == "" || a[name] != b[name] {
			t.Errorf("%s: the %s differ (%d and %d bytes)", what, name, len(a[name]), len(b[name]))
		}
	}
}

// Index, rollouts, verdicts and metrics are the same with 1, 4 and 16 shards, by the
// jobs alone, by a pool of processes, and as arrays of a Slurm cluster.
func TestShardsAndLaunchersChangeNothing(t *testing.T) {
	if !fault.Enabled {
		t.Skip("it takes a minute, and make test-fault runs it")
	}
	p := copyOf(t)
	one := stages(t, p, "one", "", 1)
	same(t, "4 shards", one, stages(t, p, "four", "", 4))
	same(t, "16 shards, three processes", one, stages(t, p, "sixteen", "--launcher local --cpus 3 --slots x/slots", 16))

	if why := slurmtest.Missing(); why != "" {
		t.Skip("Slurm is left out: " + why)
	}
	_, stop, err := slurmtest.Start(8, 1001)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	defer os.Unsetenv("SLURM_CONF")
	same(t, "4 shards on Slurm", one, stages(t, p, "slurm", "--launcher slurm --poll 300ms", 4))
	for _, name := range []string{"vectors", "index", "rollouts", "judged", "eval"} {
		local, slurm := "x/four/"+name, "x/slurm/"+name
		files, _ := filepath.Glob(p.path(local + "/part-*"))
		for _, f := range files {
			if strings.HasSuffix(f, ".json") {
				continue
			}
			if base := filepath.Base(f); !bytes.Equal(p.read(local+"/"+base), p.read(slurm+"/"+base)) {
				t.Errorf("%s/%s differs between this machine and Slurm", name, base)
			}
		}
	}

	// The same recipes of make, with a policy that servers of its own play.
	local, cluster := copyOf(t), copyOf(t)
	local.run("eval", "EPOCH=1", "SHARDS=2")
	out := cluster.run("eval", "EPOCH=1", "SHARDS=2", "LAUNCHER=slurm", "LAUNCHFLAGS=--poll 300ms", "POLICY_SERVERS=1")
	if !strings.Contains(out, "bin/launch --launcher slurm") || !strings.Contains(out, "servers are up") {
		t.Errorf("make said:\n%s", out)
	}
	compare(t, local.data(), cluster.data())
	if out := cluster.run("plan", "EPOCH=2", "SHARDS=2", "LAUNCHER=slurm"); !strings.Contains(out, "to start at") {
		t.Errorf("the plan:\n%s", out)
	}
}
