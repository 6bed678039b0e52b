package rollout

import (
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// room is how much the heap may grow before the collector runs, unless more than that
// lives: with thousands of conversations of some kilobytes it would else look at all of
// their stacks several times a second.
const room = 256 << 20

// roomy gives the collector that room until end is called. Who sets GOGC knows better.
func roomy() (end func()) {
	if os.Getenv("GOGC") != "" {
		return func() {}
	}
	now := growth(0)
	was := debug.SetGCPercent(now)
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			// It is set anew when it is off by a quarter: each time the world stops for a moment.
			metrics.Read(live)
			if p := growth(live[0].Value.Uint64()); 4*p < 3*now || 3*p > 4*now {
				debug.SetGCPercent(p)
				now = p
			}
		}
	}()
	return func() {
		close(over)
		<-ended
		debug.SetGCPercent(was)
	}
}

// growth is the room in percent of what lives.
func growth(live uint64) int {
	return int(min(max(100, 100*room/max(1, live)), 1000))
}
