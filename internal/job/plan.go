package job

import (
	"fmt"

	"searchloop/internal/shard"
)

// Plan is what --dry-run --json prints: one object per dataset of the job.
type Plan struct {
	Dataset  string      `json:"dataset"`
	Schema   string      `json:"schema"`
	Complete bool        `json:"complete"`
	Stale    []string    `json:"stale,omitempty"` // why an older dataset in the folder is not this one
	Shards   []ShardPlan `json:"shards"`
}

// ShardPlan is the state of one shard: done, todo or stale, and why.
type ShardPlan struct {
	Shard  string `json:"shard"`
	State  string `json:"state"`
	Rows   int64  `json:"rows,omitempty"`
	Reason string `json:"reason,omitempty"`
}

// Plan describes the folder as it was when the Dataset was made.
func (d *Dataset) Plan() Plan {
	p := Plan{Dataset: d.spec.Dir, Schema: d.spec.Schema, Complete: d.Complete(), Stale: d.stale}
	for i, s := range d.states {
		if !d.mine(i) {
			continue
		}
		sp := ShardPlan{Shard: shard.Spec{I: i, N: d.n}.String(), State: string(s.kind), Reason: s.why}
		if s.part != nil {
			sp.Rows = s.part.Rows()
		}
		p.Shards = append(p.Shards, sp)
	}
	return p
}

func (d *Dataset) printPlan() {
	p := d.Plan()
	if d.run.JSON {
		d.run.mu.Lock()
		defer d.run.mu.Unlock()
		plans, _ := d.run.result.([]Plan)
		d.run.result = append(plans, p)
		return
	}
	out := d.run.Out
	if p.Complete {
		if d.spec.Ext == "" {
			fmt.Fprintf(out, "%s: %s, complete, %d files: nothing to do\n", p.Dataset, p.Schema, len(d.complete.Data()))
		} else {
			fmt.Fprintf(out, "%s: %s, complete, %d rows: nothing to do\n", p.Dataset, p.Schema, d.complete.Rows())
		}
		return
	}
	fmt.Fprintf(out, "%s: %s\n", p.Dataset, p.Schema)
	for _, why := range p.Stale {
		fmt.Fprintf(out, "  stale: %s\n", why)
	}
	count := map[string]int{}
	for _, s := range p.Shards {
		count[s.State]++
		switch {
		case s.State == string(done):
			fmt.Fprintf(out, "  shard %s  done   %d rows\n", s.Shard, s.Rows)
		default:
			fmt.Fprintf(out, "  shard %s  %-5s  %s\n", s.Shard, s.State, s.Reason)
		}
	}
	fmt.Fprintf(out, "  %d done, %d to do, %d stale\n", count[string(done)], count[string(todo)], count[string(stale)])
}
