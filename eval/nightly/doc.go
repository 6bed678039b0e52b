// Package nightly evaluates the newest checkpoint of a run again, night after night:
// it has make play, judge and score every benchmark into a folder of the night, adds
// a row for each to the history, compares with the last good night, and tells. What
// goes in is a run folder and the command line of make; what comes out is in
// RUN/nights, see docs/nightly.md. It trains nothing and computes no metric of its
// own.
//
// A night is its folder: plan.json says what it evaluates, result.json that it has
// ended. A night without a result is finished by the next firing.
package nightly
