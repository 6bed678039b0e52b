// Package kv keeps values by key until they expire, adds up numbers, and books
// places in queues, for several processes at once: in a folder for the processes
// of a machine (or of machines that share a file system), in Redis for those of
// many.
//
// It knows nothing of what a value means, decides no expiry and retries nothing.
// A value that is lost costs a request, never a result: callers go on without
// the store when it fails. The formats are in docs/cache.md.
package kv

import (
	"context"
	"strings"
	"time"
)

// Store is an open store. All methods are safe for concurrent use, by goroutines
// and by processes. Values, numbers and queues have keys of their own: one does
// not see the other. Errors are of kind Service (Redis is gone) or Disk.
type Store interface {
	// Get returns the value of key. It says false when there is none or it has expired.
	Get(ctx context.Context, key string) (value []byte, found bool, err error)
	// Put sets the value of key; it expires after ttl, or never when ttl is 0. value is not kept.
	Put(ctx context.Context, key string, value []byte, ttl time.Duration) error
	// Add adds delta to a number, which begins at 0 and does not expire, and returns the sum.
	Add(ctx context.Context, key string, delta int64) (sum int64, err error)
	// Slot books the next place in a queue that lets burst through at once and then
	// one every interval, and returns how long it is until that place's turn.
	Slot(ctx context.Context, key string, every time.Duration, burst int) (wait time.Duration, err error)
	// Close ends the use of the store. What was put is kept.
	Close() error
}

// Open opens the store at place: redis://[user@]host:port[/db], rediss:// for TLS,
// or else a folder, which is made when it is not there.
func Open(ctx context.Context, place string) (Store, error) {
	if strings.HasPrefix(place, "redis://") || strings.HasPrefix(place, "rediss://") {
		return openRedis(ctx, place)
	}
	return openFolder(place)
}

// booked is the arithmetic of Slot, the generic cell rate algorithm: full is when
// the queue would be empty again.
func booked(now, full time.Time, every time.Duration, burst int) (wait time.Duration, next time.Time) {
	if full.Before(now) {
		full = now
	}
	return max(0, full.Sub(now)-time.Duration(burst-1)*every), full.Add(every)
}
