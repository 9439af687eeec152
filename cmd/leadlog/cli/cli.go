// Package cli has the terminal functions that subcommands share: output, usage errors, and progress.
package cli

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"
)

// Output is where a command writes: its results to Out; progress, warnings and errors to Err.
type Output struct{ Out, Err io.Writer }

// IsTerminal reports whether a writer is a terminal.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// UsageError is an invalid argument, flag or setting. The program exits with 2.
type UsageError struct{ Err error }

func (e *UsageError) Error() string { return e.Err.Error() }
func (e *UsageError) Unwrap() error { return e.Err }

// Usagef returns a formatted UsageError.
func Usagef(format string, args ...any) error { return &UsageError{fmt.Errorf(format, args...)} }

// Checker collects the errors of flags and settings.
type Checker struct{ wrong []error }

// Refuse adds the error of a flag or setting. Want completes "must be". The user and password of a URL are not shown.
func (c *Checker) Refuse(name, value, want string) {
	c.wrong = append(c.wrong, fmt.Errorf("%s=%q: must be %s", name, userInfo.ReplaceAllString(value, "://***@"), want))
}

// userInfo matches the user and password of a URL, also if the password contains an unescaped /, @ or space.
var userInfo = regexp.MustCompile(`(?s)://.*@`)

// RefuseSecret is Refuse for a value that may be secret: the error has only its length.
func (c *Checker) RefuseSecret(name, value, want string) {
	shown := "(not set)"
	if value != "" {
		shown = fmt.Sprintf("(%d characters, not shown)", len(value))
	}
	c.wrong = append(c.wrong, fmt.Errorf("%s=%s: must be %s", name, shown, want))
}

// Time parses a time in RFC 3339, or refuses it.
func (c *Checker) Time(name, value, want string) time.Time {
	at, err := time.Parse(time.RFC3339, value)
	if err != nil || !at.After(time.Time{}) {
		c.Refuse(name, value, want)
	}
	return at
}

// Err returns a UsageError with everything that was refused, or nil.
func (c *Checker) Err() error {
	if err := errors.Join(c.wrong...); err != nil {
		return &UsageError{err}
	}
	return nil
}

// Logger returns the logger of commands that people run by hand. It writes text, and only warnings and errors.
func Logger(c Output) *slog.Logger {
	return slog.New(slog.NewTextHandler(c.Err, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// Printable escapes text of a caller or a file, so that it cannot control a terminal. Control characters and those that
// change the direction of text are written as Go writes them: \x1b or \u202e.
func Printable(text string) string {
	var b strings.Builder
	for _, r := range text {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
