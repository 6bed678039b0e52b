package tool

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"searchloop/rollout/trajectory"
)

// notes collects the sources of one call, of all the services that it asks.
type notes struct {
	mu   sync.Mutex
	list []trajectory.Source
}

type notesKey struct{}

func noting(ctx context.Context) (context.Context, *notes) {
	n := &notes{}
	return context.WithValue(ctx, notesKey{}, n), n
}

// Note records where part of the observation in the making came from. Live tools
// call it, as often as they like; outside of a Box it does nothing.
func Note(ctx context.Context, s trajectory.Source) {
	if n, ok := ctx.Value(notesKey{}).(*notes); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.list = append(n.list, s)
	}
}

// sorted are the sources, each once, in an order that does not depend on which
// came first.
func (n *notes) sorted() []trajectory.Source {
	n.mu.Lock()
	defer n.mu.Unlock()
	slices.SortFunc(n.list, func(a, b trajectory.Source) int {
		return cmp.Or(strings.Compare(a.Provider, b.Provider), strings.Compare(a.URL, b.URL), strings.Compare(a.Time, b.Time), strings.Compare(a.SHA256, b.SHA256))
	})
	return slices.Compact(n.list)
}
