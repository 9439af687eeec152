package leadfile

import (
	"regexp"
	"strconv"
	"strings"
	"time"
)

// dateOrder is how the dates of a column are written that begin with neither the year nor the name of a month.
type dateOrder struct{ monthFirst bool }

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
func (o dateOrder) parse(text string, now time.Time) (time.Time, bool) {
	at, ok := o.read(text)
	return at.UTC(), ok && at.Year() >= 1990 && at.Before(now.Add(24*time.Hour))
}

func (o dateOrder) read(text string) (time.Time, bool) {
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
	if o.monthFirst {
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
	fraction, _ := strconv.Atoi((part(4) + "000000000")[:9])
	date = strings.Join(strings.Fields(text[:at[0]]+" "+text[at[1]:]), " ")
	return date, hour*time.Hour + minute*time.Minute + second*time.Second + time.Duration(fraction),
		zoneOf(part(6)), true
}

// zoneOf returns the zone of an offset such as +05:30. Names of zones are ambiguous, but for those of the time of
// reference.
func zoneOf(text string) *time.Location {
	text = strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(text, "GMT"), "UTC"), ":", "")
	if at, err := time.Parse("-0700", text); err == nil {
		_, offset := at.Zone()
		return time.FixedZone("", offset)
	}
	return time.UTC
}

// orderOf returns the order of numbers that most dates of a column have; by default that of the region.
func orderOf(dates []string, region string) dateOrder {
	days, months := 0, 0
	for _, text := range dates {
		date, _, _, _ := cutClock(text)
		parts := numeric.FindStringSubmatch(date)
		if parts == nil {
			continue
		}
		if first, _ := strconv.Atoi(parts[1]); first > 12 {
			days++
		}
		if second, _ := strconv.Atoi(parts[2]); second > 12 {
			months++
		}
	}
	if days == months {
		return dateOrder{monthFirst: region == "US"}
	}
	return dateOrder{monthFirst: months > days}
}
