// Package job is what every batch executable promises: flags, signals, exit
// codes, progress, and datasets that are made shard by shard, survive a kill at
// any moment and are never made twice. A command embeds Flags, implements Run and
// hands itself to Main:
//
//	func (c *command) Run(ctx context.Context, r *job.Run) error {
//		d, err := r.Dataset(job.Spec{Dir: c.Out, Schema: "passages", Version: 1,
//			Inputs: map[string]string{"source": c.In}, Params: params, Ext: "parquet"})
//		if err != nil || d.Complete() || d.DryRun() {
//			return err
//		}
//		for _, sh := range d.Todo() {
//			s, err := d.Begin(sh)
//			if err != nil {
//				return err
//			}
//			if s == nil { // another process makes it
//				continue
//			}
//			… write s.Part(), journal in s.Journal(), s.Reject(…), s.Commit(rows, counts); s.Discard() on errors
//		}
//		return d.Seal(nil)
//	}
//
// It knows no schema and does no work of its own. The contract for users is
// docs/jobs.md.
package job
