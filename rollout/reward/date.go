package reward

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// date is a date of some precision: day 0 is a month, month 0 a year.
type date struct{ year, month, day int }

var (
	isoDate   = regexp.MustCompile(`\b(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})\b`)
	dayFirst  = regexp.MustCompile(`(?i)\b(\d{1,2})(?:st|nd|rd|th)?(?:\s+of)?\s+([a-z]{3,9})\.?,?\s+(\d{4})\b`)
	monthDay  = regexp.MustCompile(`(?i)\b([a-z]{3,9})\.?\s+(\d{1,2})(?:st|nd|rd|th)?,?\s+(\d{4})\b`)
	monthOnly = regexp.MustCompile(`(?i)\b([a-z]{3,9})\.?,?\s+(\d{4})\b`)
	isoMonth  = regexp.MustCompile(`\b(\d{4})[-/](\d{1,2})\b`)
	yearOnly  = regexp.MustCompile(`\b(\d{4})\b`)
)

var months = func() map[string]int {
	m := map[string]int{"sept": 9}
	for i := time.January; i <= time.December; i++ {
		name := strings.ToLower(i.String())
		m[name], m[name[:3]] = int(i), int(i)
	}
	return m
}()

// SameDate says whether the answer holds exactly one date, and it is the date of an
// accepted answer, as precise or more: "4 July 1776" answers "July 1776", not the
// other way round. 03/04/2020 says two things and is no date.
func SameDate(answer string, accepted []string) bool {
	a, ok := oneDate(answer)
	if !ok {
		return false
	}
	for _, x := range accepted {
		d, ok := oneDate(x)
		if ok && d.year == a.year && (d.month == 0 || d.month == a.month) && (d.day == 0 || d.day == a.day) {
			return true
		}
	}
	return false
}

// oneDate reads the only date of a text, in the most precise form that it has.
func oneDate(s string) (d date, ok bool) {
	if len(yearOnly.FindAllString(s, 2)) != 1 {
		return d, false
	}
	n := func(s string) int { v, _ := strconv.Atoi(s); return v }
	if m := isoDate.FindStringSubmatch(s); m != nil {
		d = date{n(m[1]), n(m[2]), n(m[3])}
	} else if m := dayFirst.FindStringSubmatch(s); m != nil && months[strings.ToLower(m[2])] > 0 {
		d = date{n(m[3]), months[strings.ToLower(m[2])], n(m[1])}
	} else if m := monthDay.FindStringSubmatch(s); m != nil && months[strings.ToLower(m[1])] > 0 {
		d = date{n(m[3]), months[strings.ToLower(m[1])], n(m[2])}
	} else if m := isoMonth.FindStringSubmatch(s); m != nil {
		d = date{n(m[1]), n(m[2]), 0}
	} else if m := monthOnly.FindStringSubmatch(s); m != nil && months[strings.ToLower(m[1])] > 0 {
		d = date{n(m[2]), months[strings.ToLower(m[1])], 0}
	} else if regexp.MustCompile(`\d[/.-]\d`).MatchString(s) {
		return d, false
	} else {
		d = date{year: n(yearOnly.FindString(s))}
	}
	if d.month > 12 || d.month < 0 || d.day > 0 && time.Date(d.year, time.Month(d.month), d.day, 0, 0, 0, 0, time.UTC).Day() != d.day {
		return d, false
	}
	return d, true
}
