// Package launch makes a dataset by many processes: on this machine by a pool
// (Local), on a cluster by another Launcher (package slurm). A job's command line
// goes in; the finished dataset comes out, or an error that names the shards that
// are missing.
//
// It believes manifests and nothing else: the job itself is asked which shards are
// missing, those are run, and the job is asked again. What a launcher says of its
// tasks only decides whether waiting and trying again make sense. It schedules
// nothing and reads no row. The contract for users is docs/slurm.md.
package launch

import (
	"context"
	"path/filepath"
	"time"

	"searchloop/internal/fail"
	"searchloop/internal/recipe"
	"searchloop/internal/shard"
)

// Stage is a job to be run as many tasks.
type Stage struct {
	Job     string      // rollout
	Command []string    // the executable and its flags, --shards N among them
	Needs   recipe.Task // of one task
}

// Array is tasks of a stage that are to be run.
type Array struct {
	Stage
	Out   string     // folder of the dataset
	N     int        // its shards
	Round int        // counts from 1
	Tasks shard.List // what each task makes
}

// Interrupted is the error of a wait whose context ended.
func Interrupted() error { return fail.Wrap(fail.Interrupted, "", "", context.Canceled) }

// Sleep waits; its error is Interrupted.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return Interrupted()
	case <-time.After(d):
		return nil
	}
}

// Dir is where a launcher keeps what it needs until the dataset is finished.
func Dir(out string) string { return filepath.Clean(out) + ".launch" }

// Logs is the folder of the tasks' output.
func Logs(out string) string { return filepath.Join(Dir(out), "logs") }

// Fate is what became of a task.
type Fate int

const (
	Unknown   Fate = iota // it is not there any more, and nobody knows why
	Done                  // it ended well
	Failed                // it ended with an error, or was killed, or ran out of time or memory
	Lost                  // its node failed, or it had to make room for another
	Cancelled             // somebody took it off
)

// End is a task's end as far as its launcher knows.
type End struct {
	Fate Fate
	How  string // for people: TIMEOUT, exit 65
	Log  string // file of its output; may be missing
}

// Server is servers that a stage needs while it runs. They are told --addr and
// --addr-file: they listen there and write there where they can be reached.
type Server struct {
	Name    string // the command names it as @NAME
	N       int
	Command []string
	Needs   recipe.Task // of one server
}

// Launcher runs tasks somewhere. Its errors are those of the place itself; that a
// task fails is no error of Run.
type Launcher interface {
	// Room is how many tasks can run at once; 0 when that is not known.
	Room(ctx context.Context, needs recipe.Task) (int, error)
	// Check says what Run would do, without doing it, or why that is impossible.
	Check(ctx context.Context, a *Array) ([]string, error)
	// Attach waits for tasks that an earlier Run for the same command has left
	// behind, and takes those of another command off.
	Attach(ctx context.Context, a *Array) error
	// Run runs the tasks and returns when none of them is left or the dataset is
	// finished. When ctx ends it takes them off; its error is of kind Interrupted then.
	Run(ctx context.Context, a *Array) (map[int]End, error)
	// Serve starts servers and waits until they are well. file receives their
	// addresses, one a line, and is kept up to date; stop ends them.
	Serve(ctx context.Context, s Server, out, file string) (stop func(), err error)
	// Close removes what the launcher has left outside of Dir.
	Close() error
}
