package console

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// A live page is rendered once a second, or less often if that takes long. A comment line is sent regularly, so that no
// proxy closes the connection as idle.
const (
	liveInterval  = time.Second
	liveShare     = 4 // all live pages together are being rendered a fourth of the time
	liveHeartbeat = 20 * time.Second
	liveWrite     = 10 * time.Second
)

// wantsStream reports whether a request was made by the script of a live page.
func wantsStream(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream")
}

// stream sends a page, and again whenever it has changed, until the browser disconnects, the session ends or the
// service stops. The script replaces the parts of the page that have changed.
func (v *visit) stream() {
	leave, err := v.Gate.Follow(v.identity.Account)
	if err != nil {
		v.fail(err)
		return
	}
	defer leave()
	v.streams.Add(1)
	defer v.streams.Add(-1)
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{}) // the body is not read, and a deadline must not end the stream
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it
	var last []byte
	var lastSent time.Time
	for {
		begun := time.Now()
		next, err := v.again()
		pause := livePause(time.Since(begun), v.streams.Load())
		message := sse(next)
		switch {
		case err != nil && v.Gate.Explain(err).Status == http.StatusTooManyRequests:
			message, err = nil, nil // it is rendered again after the pause
		case err != nil:
			message = []byte("event: end\ndata:\n\n") // the script reloads the page, which shows the error
		case bytes.Equal(next, last):
			message = nil
			if time.Since(lastSent) > liveHeartbeat {
				message = []byte(":\n\n")
			}
		}
		if message != nil {
			_ = control.SetWriteDeadline(time.Now().Add(liveWrite)) // some connections have none
			if _, failed := v.w.Write(message); failed != nil || control.Flush() != nil || err != nil {
				return
			}
			last, lastSent = next, time.Now()
		}
		select {
		case <-time.After(pause):
		case <-v.r.Context().Done():
			return
		case <-v.Stopping:
			return
		}
	}
}

// livePause is how long a page waits before it is rendered again, given how long rendering took and how many pages are
// live. Of a page that stalled once, a reader does not wait longer than for a comment line.
func livePause(took time.Duration, pages int64) time.Duration {
	return min(max(liveInterval, liveShare*time.Duration(pages)*took), liveHeartbeat)
}

// again renders the page as if it were opened again.
func (v *visit) again() ([]byte, error) {
	return v.within(func(v *visit) ([]byte, error) {
		if err := v.admit(); err != nil {
			return nil, err
		}
		shown, err := v.show()
		if err != nil {
			return nil, err
		}
		return v.pages.renderMain(shown.name, v.layout(shown))
	})
}

// sse returns a text as one server-sent event. A carriage return ends a line there too, and text after it, which may
// come from an endpoint's answer or a lead's metadata, would be read as fields of the event.
func sse(text []byte) []byte {
	var out bytes.Buffer
	// as HTML is read
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
	for line := range bytes.Lines(text) {
		out.WriteString("data: ")
		out.Write(bytes.TrimSuffix(line, []byte("\n")))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.Bytes()
}
