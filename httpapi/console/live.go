package console

import (
	"bytes"
	"net/http"
	"strings"
	"time"
)

// What is shown is looked at anew once a second, and a line goes out now and then, so that nobody on the way takes the
// connection for dead.
const (
	liveInterval  = time.Second
	liveHeartbeat = 20 * time.Second
	liveWrite     = 10 * time.Second
)

// wantsStream tells the script of a page from somebody who opens the page.
func wantsStream(r *http.Request) bool {
	return strings.HasPrefix(r.Header.Get("Accept"), "text/event-stream")
}

// stream sends a page, and sends it again whenever it has changed, until the browser goes, the session ends or the service
// stops. The script puts what has changed in the place of what is shown.
func (v *visit) stream() {
	select {
	case v.streams <- struct{}{}:
		defer func() { <-v.streams }()
	default:
		v.w.Header().Set("Retry-After", "30")
		http.Error(v.w, "Too many pages are kept up to date here.", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(v.w)
	_ = control.SetReadDeadline(time.Time{}) // nothing more is read, and that must not end it
	v.w.Header().Set("Content-Type", "text/event-stream")
	v.w.Header().Set("X-Accel-Buffering", "no") // nginx would keep it
	tick := time.NewTicker(liveInterval)
	defer tick.Stop()
	var last []byte
	var said time.Time
	for {
		next, err := v.again()
		message := sse(next)
		switch {
		case err != nil:
			message = []byte("event: end\ndata:\n\n") // the page is opened anew, and says what is wrong
		case bytes.Equal(next, last):
			message = nil
			if time.Since(said) > liveHeartbeat {
				message = []byte(":\n\n")
			}
		}
		if message != nil {
			_ = control.SetWriteDeadline(time.Now().Add(liveWrite)) // some connections have none
			if _, failed := v.w.Write(message); failed != nil || control.Flush() != nil || err != nil {
				return
			}
			last, said = next, time.Now()
		}
		select {
		case <-tick.C:
		case <-v.r.Context().Done():
			return
		case <-v.Stopping:
			return
		}
	}
}

// again looks at the page as if it were opened anew.
func (v *visit) again() ([]byte, error) {
	return v.within(func(v *visit) ([]byte, error) {
		if err := v.admit(); err != nil {
			return nil, err
		}
		shown, err := v.page.show(v)
		if err != nil {
			return nil, err
		}
		var text bytes.Buffer
		err = v.pages.byName[shown.name].ExecuteTemplate(&text, "main", frame{
			Title: shown.title, Identity: v.identity, SignedIn: true, Live: true, Data: shown.data,
		})
		return text.Bytes(), err
	})
}

// sse writes a text as one server-sent event. A carriage return ends a line there too, and what stood behind it would be
// taken for fields of the event, whoever wrote it: an endpoint in an answer, a form in its metadata.
func sse(text []byte) []byte {
	var out bytes.Buffer
	text = bytes.ReplaceAll(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n")) // as HTML is read
	for line := range bytes.Lines(text) {
		out.WriteString("data: ")
		out.Write(bytes.TrimSuffix(line, []byte("\n")))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
	return out.Bytes()
}
