package rollout

import (
	"path/filepath"
	"reflect"
	"testing"

	"searchloop/internal/journal"
	"searchloop/rollout/scripted"
	"searchloop/rollout/trajectory"
)

// What a rollout journals is what those who follow it read: the row as it will be.
func TestFollowersReadTheJournal(t *testing.T) {
	s := newStage(t, scripted.Options{Script: says(byLens, search, answer), Tokens: true}, nil)
	row := s.play(t, s.shown)
	path := filepath.Join(t.TempDir(), "j")
	j, err := journal.Open(path, "x")
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := enter(j, &record{Row: row}); err != nil {
		t.Fatal(err)
	}
	tail := journal.NewTail(path)
	defer tail.Close()
	key, payload, ok, err := tail.Next()
	if err != nil || !ok || key != row.ID {
		t.Fatal(key, ok, err)
	}
	got, err := trajectory.Journaled(payload)
	if err != nil || got.ID != row.ID || got.Answer != row.Answer || got.Question != row.Question || !reflect.DeepEqual(got.TokenIDs, row.TokenIDs) || len(got.Turns) != len(row.Turns) || got.Turns[2].Text != row.Turns[2].Text {
		t.Errorf("%+v\n%+v %v", got, row, err)
	}
}
