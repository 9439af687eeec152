package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Progress shows the progress of a long command on stderr: on a terminal in one line that is redrawn, elsewhere in a
// new line every few seconds.
type Progress struct {
	w        io.Writer
	terminal bool
	what     string
	began    time.Time
	from     uint64    // where this run began
	shown    time.Time // when a line was last written
	width    int       // of the line on the terminal
}

// NewProgress starts a Progress. Each line begins with what.
func NewProgress(w io.Writer, what string) *Progress {
	return &Progress{w: w, terminal: IsTerminal(w), what: what, began: time.Now(), shown: time.Now()}
}

// Resumed sets how much an earlier run had done already, so that the rate is that of this run.
func (p *Progress) Resumed(done uint64) { p.from = done }

const (
	redraw    = 200 * time.Millisecond
	heartbeat = 5 * time.Second
)

// Show prints how far the work is. A total of 0 means that it is not known.
func (p *Progress) Show(done, total uint64, unit string) {
	pause := heartbeat
	if p.terminal {
		pause = redraw
	}
	now := time.Now()
	if now.Sub(p.shown) < pause {
		return
	}
	p.shown = now
	p.write(p.line(done, total, unit, now.Sub(p.began)))
}

func (p *Progress) line(done, total uint64, unit string, took time.Duration) string {
	rate := float64(done-min(p.from, done)) / max(took.Seconds(), 0.001)
	if total == 0 {
		return fmt.Sprintf("%s: %d %s, %.0f a second", p.what, done, unit, rate)
	}
	left := "unknown"
	if rate > 0 {
		seconds := float64(total-min(done, total)) / rate
		left = time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
	}
	return fmt.Sprintf("%s: %d of %d %s (%.0f %%), %.0f a second, %s left", p.what, done, total, unit,
		100*float64(done)/float64(total), rate, left)
}

func (p *Progress) write(line string) {
	if !p.terminal {
		fmt.Fprintln(p.w, line)
		return
	}
	fmt.Fprint(p.w, "\r", line, strings.Repeat(" ", max(0, p.width-len(line))))
	p.width = len(line)
}

// Clear removes the line that is redrawn, so that a result has a line of its own.
func (p *Progress) Clear() {
	if p.width > 0 {
		fmt.Fprint(p.w, "\r", strings.Repeat(" ", p.width), "\r")
		p.width = 0
	}
}

// Note prints, in a line of its own, that a part is done.
func (p *Progress) Note(format string, args ...any) {
	p.write(fmt.Sprintf(format, args...))
	if p.terminal {
		fmt.Fprintln(p.w)
		p.width = 0
	}
}

// End prints the result and how long the command took.
func (p *Progress) End(format string, args ...any) {
	line := fmt.Sprintf("%s: %s (%s)", p.what, fmt.Sprintf(format, args...),
		time.Since(p.began).Round(time.Millisecond))
	p.write(line)
	if p.terminal {
		fmt.Fprintln(p.w)
	}
}
