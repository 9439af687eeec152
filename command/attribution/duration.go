package attribution

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

var errDuration = errors.New("must be days or hours such as 7d or 12h")

// ParseDuration reads whole days or hours, such as 90d or 12h.
func ParseDuration(text string) (time.Duration, error) {
	unit, digits := Day, strings.TrimSuffix(text, "d")
	if digits == text {
		unit, digits = time.Hour, strings.TrimSuffix(text, "h")
	}
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || digits == text || strconv.FormatUint(n, 10) != digits {
		return 0, errDuration
	}
	return time.Duration(n) * unit, nil
}

// FormatDuration formats whole days, or whole hours.
func FormatDuration(d time.Duration) string {
	if d%Day == 0 {
		return strconv.FormatInt(int64(d/Day), 10) + "d"
	}
	return strconv.FormatInt(int64(d/time.Hour), 10) + "h"
}
