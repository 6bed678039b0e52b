// Package fault gives tests named points in the program at which the process is
// killed or a call fails, so that a test can interrupt a job exactly between two
// steps. In a normal build Point does nothing and is compiled away; with the
// build tag "fault" it obeys two environment variables, each "name:count":
//
//	SEARCHLOOP_KILL_AT=shard.part:1      SIGKILL at the first time the point is reached
//	SEARCHLOOP_FAIL_AT=atomicfile.sync:2 ENOSPC at the second time (name:count:EIO for another errno)
//
// A name ending in "*" counts every point that starts with it.
package fault
