package leadfile

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// DateOrder is how the dates of a column are written that begin with neither the year nor the name of a month.
type DateOrder struct{ MonthFirst bool }

var (
	// clock is the time of a day, with its zone.
	clock = regexp.MustCompile(
		`(?:[T ,]+| at )(\d{1,2}):(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)? ?([AaPp])?\.?(?:[Mm]\b\.?)? ` +
			`?(Z|(?:GMT|UTC)?[+-]\d\d:?\d\d|[A-Z]{3,4})?`,
	)
	// numeric is a date in digits that does not begin with the year.
	numeric = regexp.MustCompile(`^(\d{1,2})[-/.](\d{1,2})[-/.](?:\d{4}|\d\d)$`)

	dayLayouts = [...]string{
		"2006-1-2", "2006/1/2", "2006.1.2", "20060102", "2 Jan 2006", "2-Jan-2006", "2 January 2006", "Jan 2, 2006",
		"January 2, 2006", "Jan 2 2006", "2-Jan-06", "Mon, 2 Jan 2006", "Mon Jan 2 2006",
	}
	dayFirst   = [...]string{"2/1/2006", "2-1-2006", "2.1.2006", "2/1/06", "2-1-06", "2.1.06"}
	monthFirst = [...]string{"1/2/2006", "1-2-2006", "1.2.2006", "1/2/06", "1-2-06", "1.2.06"}
)

// parse reads when a person came: a date, with or without a time, or seconds or milliseconds since 1970. Without a
// zone it is in UTC. One before 1990 or after now is wrong: spreadsheets write 1900 for a cell without a date.
func (o DateOrder) parse(text string, now time.Time) (time.Time, bool) {
	at, ok := o.Date(text)
	return at.UTC(), ok && at.Year() >= 1990 && at.Before(now.Add(24*time.Hour))
}

// Date reads a date, with or without a time, as parse does but of any year.
func (o DateOrder) Date(text string) (time.Time, bool) {
	if len(text) < len("1/2/06") || len(text) > 100 {
		return time.Time{}, false
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return at, true
	}
	if seconds, err := strconv.ParseInt(text, 10, 64); err == nil {
		switch len(text) {
		case len("1700000000"):
			return time.Unix(seconds, 0), true
		case len("1700000000000"):
			return time.UnixMilli(seconds), true
		}
	}
	text, _, _ = strings.Cut(text, "(") // the name of a zone
	date, sinceMidnight, zone, ok := cutClock(text)
	if !ok {
		return time.Time{}, false
	}
	own := dayFirst
	if o.MonthFirst {
		own = monthFirst
	}
	for _, layouts := range [][]string{dayLayouts[:], own[:]} {
		for _, layout := range layouts {
			if day, err := time.ParseInLocation(layout, date, zone); err == nil {
				return day.Add(sinceMidnight), true
			}
		}
	}
	return time.Time{}, false
}

// cutClock splits a text into a date, and the time of the day, which it may lack.
func cutClock(text string) (date string, sinceMidnight time.Duration, zone *time.Location, ok bool) {
	at := clock.FindStringSubmatchIndex(text)
	if at == nil {
		return strings.Join(strings.Fields(text), " "), 0, time.UTC, true
	}
	part := func(n int) string {
		if at[2*n] < 0 {
			return ""
		}
		return text[at[2*n]:at[2*n+1]]
	}
	number := func(n int) time.Duration {
		value, _ := strconv.Atoi(part(n))
		return time.Duration(value)
	}
	hour, minute, second := number(1), number(2), number(3)
	switch half := strings.ToLower(part(5)); {
	case half != "" && (hour < 1 || hour > 12):
		return "", 0, nil, false
	case half == "p" && hour < 12:
		hour += 12
	case half == "a" && hour == 12:
		hour = 0
	}
	if hour > 23 || minute > 59 || second > 59 {
		return "", 0, nil, false
	}
	if zone, ok = zoneOf(part(6)); !ok {
		return "", 0, nil, false
	}
	fraction, _ := strconv.Atoi((part(4) + "000000000")[:9])
	date = strings.Join(strings.Fields(text[:at[0]]+" "+text[at[1]:]), " ")
	return date, hour*time.Hour + minute*time.Minute + second*time.Second + time.Duration(fraction),
		zone, true
}

// zones are the offsets, in minutes, of names of zones: those of RFC 5322 (4.3), and others with one meaning. IST is
// India's, as most who write it mean. A time of any other zone is wrong: hours off, a touch is of another day.
var zones = map[string]int{
	"": 0, "Z": 0, "UT": 0, "UTC": 0, "GMT": 0,
	"EST": -5 * 60, "EDT": -4 * 60, "CST": -6 * 60, "CDT": -5 * 60, "MST": -7 * 60, "MDT": -6 * 60, "PST": -8 * 60,
	"PDT": -7 * 60,
	"WET": 0, "WEST": 60, "CET": 60, "CEST": 2 * 60, "EET": 2 * 60, "EEST": 3 * 60, "MSK": 3 * 60, "SAST": 2 * 60,
	"EAT": 3 * 60, "IST": 5*60 + 30, "PKT": 5 * 60, "NPT": 5*60 + 45, "WIB": 7 * 60, "SGT": 8 * 60, "HKT": 8 * 60,
	"JST": 9 * 60, "KST": 9 * 60, "AEST": 10 * 60, "AEDT": 11 * 60, "NZST": 12 * 60, "NZDT": 13 * 60, "BRT": -3 * 60,
}

// zoneOf returns the zone of an offset such as +05:30, or of a name that is known.
func zoneOf(text string) (*time.Location, bool) {
	if minutes, known := zones[text]; known {
		return time.FixedZone("", minutes*60), true
	}
	text = strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(text, "GMT"), "UTC"), ":", "")
	at, err := time.Parse("-0700", text)
	if err != nil {
		return nil, false
	}
	_, offset := at.Zone()
	return time.FixedZone("", offset), true
}

// orderOf returns the order of numbers that most dates of a column have; by default that of the region.
func orderOf(dates []string, region string) DateOrder {
	days, months, _ := countOrders(dates)
	if days == months {
		return DateOrder{MonthFirst: region == "US"}
	}
	return DateOrder{MonthFirst: months > days}
}

// KnownOrder returns the order of numbers that the dates of a column have. Known is false if there is a date that is
// another one in the other order, and no date shows which.
func KnownOrder(dates []string) (order DateOrder, known bool) {
	days, months, ambiguous := countOrders(dates)
	return DateOrder{MonthFirst: months > days}, days != months || ambiguous == 0
}

// countOrders counts the dates that begin with the day, those that begin with the month, and those that may do either
// and would be another day.
func countOrders(dates []string) (days, months, ambiguous int) {
	for _, text := range dates {
		date, _, _, _ := cutClock(text)
		parts := numeric.FindStringSubmatch(date)
		if parts == nil {
			continue
		}
		first, _ := strconv.Atoi(parts[1])
		second, _ := strconv.Atoi(parts[2])
		if first > 12 {
			days++
		}
		if second > 12 {
			months++
		}
		if first <= 12 && second <= 12 && first != second {
			ambiguous++
		}
	}
	return days, months, ambiguous
}
