package trajectory

import (
	"encoding/json"
	"fmt"
)

// Journaled is the row of a record in the journal of an unfinished rollouts dataset
// (docs/journal.md), for those who follow a rollout.
func Journaled(payload []byte) (Row, error) {
	var record struct{ Row Row }
	err := json.Unmarshal(payload, &record)
	if err == nil && record.Row.ID == "" {
		err = fmt.Errorf("a record without a row")
	}
	return record.Row, err
}
